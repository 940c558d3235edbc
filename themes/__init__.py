"""Colour themes, one TOML file each."""
