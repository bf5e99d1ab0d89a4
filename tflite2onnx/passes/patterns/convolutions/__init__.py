"""Convolutions, and the operators around them."""
