"""Inverses, determinants and decompositions of matrices, and products by index notation."""
