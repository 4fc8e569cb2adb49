"""The small programs around the image."""
