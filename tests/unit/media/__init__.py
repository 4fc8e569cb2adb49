"""Finding results in outputs and telling what bytes are."""
