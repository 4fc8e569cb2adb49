"""Pure parts, alone."""
