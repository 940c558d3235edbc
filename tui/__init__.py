"""The terminal: what the operator sees and presses."""
