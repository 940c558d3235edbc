"""What runs on slices, and the arithmetic of it."""
