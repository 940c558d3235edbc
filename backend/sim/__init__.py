"""The simulated Cloud TPU: a separate process that only the ordinary clients talk to."""
