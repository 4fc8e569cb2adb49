"""The local stack on real parts."""
