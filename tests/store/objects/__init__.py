"""The bucket and the copy into it, against a real S3 store."""
