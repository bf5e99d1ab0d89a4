"""Complex numbers become pairs of real numbers."""
