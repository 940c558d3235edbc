"""The Cloud TPU API: client, watch, errors, equivalents."""
