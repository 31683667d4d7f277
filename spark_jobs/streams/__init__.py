"""Reads events: files and tables, copies of databases, landed topics."""
