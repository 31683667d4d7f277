"""The sharing plan: built, stored, compared, explained."""
