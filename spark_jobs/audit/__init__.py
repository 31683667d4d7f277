"""Judges answers before they are published, without any code that answers."""
