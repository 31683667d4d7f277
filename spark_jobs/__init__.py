"""Runs sharing plans: reads streams, computes partial and final aggregates, audits and publishes them."""
