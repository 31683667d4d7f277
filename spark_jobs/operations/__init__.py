"""Commands and pages of an operator."""
