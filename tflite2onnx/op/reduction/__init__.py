"""Operators that reduce axes or accumulate along them."""
