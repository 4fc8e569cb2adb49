"""Commands on real parts."""
