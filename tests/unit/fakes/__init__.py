"""Tests of the stand-ins themselves: what the other suites trust must hold first."""
