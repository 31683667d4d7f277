"""Answers windows of time, of rows and of event sequences from shared partial aggregates."""
