"""Fourier transforms and audio frontends."""
