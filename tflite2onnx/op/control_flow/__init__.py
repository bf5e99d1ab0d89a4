"""Operators that run subgraphs, and operators on variables."""
