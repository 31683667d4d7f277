"""Build of the wheel and the sdist (``pyproject.toml`` names :mod:`building.backend`)."""
