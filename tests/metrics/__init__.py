"""A corpus of windowed metrics from the public documentation of other products."""
