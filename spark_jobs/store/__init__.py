"""Keeps what survives a run: tables of the warehouse, settings, files on disks and in object stores."""
