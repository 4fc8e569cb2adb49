"""The archiver room: copies what providers finished into our own bucket, before they forget."""
