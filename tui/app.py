"""The Textual application: opened by `slicetower` without a verb."""
