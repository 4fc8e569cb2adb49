"""The command line: grammar, sources, output."""
