"""Text to queries."""
