"""Attention with several heads."""
