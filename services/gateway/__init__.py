"""The front door: jobs are handed in, watched, cancelled and fetched here."""
