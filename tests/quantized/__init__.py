"""Quantized tensors: what LiteRT makes of stored integers, operator by operator."""
