"""Everything outside the terminal: the cloud, ssh, runs, logs, the journal."""
