"""What runs cost: measured, fitted, predicted."""
