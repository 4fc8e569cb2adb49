"""The whole path on a whole stack: real parts, every room its own process, real kills."""
