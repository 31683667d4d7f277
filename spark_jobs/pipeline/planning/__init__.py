"""Planning: from files to a stored plan."""
