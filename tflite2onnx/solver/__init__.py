"""Combinatorial optimisation, independent of tensors and operators."""
