"""Many windows over one array of fragments."""
