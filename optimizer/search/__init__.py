"""Which queries share: costs, and every search for a plan."""
