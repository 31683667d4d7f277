"""The table of answers: written, read, deleted."""
