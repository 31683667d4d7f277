"""What a tree stores, and what its filters and group-bys share."""
