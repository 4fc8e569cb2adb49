"""The submitter room: buys jobs, each at most once."""
