"""Operators that look up, search or scatter elements by index or key."""
