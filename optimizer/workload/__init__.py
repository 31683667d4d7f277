"""Typed values: queries, streams, expressions, filters, instants."""
