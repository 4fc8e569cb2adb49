"""Rules of the local stack, each part by itself."""
