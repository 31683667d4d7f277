"""Costs of runs: measurement, fit and prediction."""
