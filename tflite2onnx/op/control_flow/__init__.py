"""Operators that run sub-graphs, and operators on variables."""
