"""Operators on quantized tensors: stored integers are compared with LiteRT's."""
