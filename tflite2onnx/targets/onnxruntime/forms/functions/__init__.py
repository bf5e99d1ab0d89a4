"""Forms of functions."""
