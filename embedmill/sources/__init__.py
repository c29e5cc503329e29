"""Sources: where documents come from."""
