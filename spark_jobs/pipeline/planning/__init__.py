"""From files to a stored plan."""
