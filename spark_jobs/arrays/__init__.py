"""Arrow and Numba ground."""
