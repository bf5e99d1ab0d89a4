"""Combinatorial optimisation, without knowledge of tensors or operators."""
