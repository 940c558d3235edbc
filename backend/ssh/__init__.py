"""SSH: connections, routes, keys, host keys."""
