"""Event streams, as typed batches, and what is taken in of them."""
