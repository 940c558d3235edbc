"""The headless twin: one file a verb, on the same backend, without textual."""
