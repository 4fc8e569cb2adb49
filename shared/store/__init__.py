"""The database door: the one layer that speaks SQL. Writes to `jobs` stand in `statements.py`."""
