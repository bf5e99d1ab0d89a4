"""Normalizations along the axes of a tensor."""
