"""The rules as prose and tables: stages, edges, hints, errors. Pure: no I/O, no clock."""
