"""The back door for providers: authentic callbacks become evidence, and nothing else."""
