"""Arrow Flight SQL over the published answers: what a BI tool connects to."""
