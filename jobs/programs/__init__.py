"""Programs that are shipped to workers: the standard library and jax, nothing of this project."""
