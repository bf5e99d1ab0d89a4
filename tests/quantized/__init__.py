"""Quantized tensors: stored integers compared with LiteRT, operator by operator."""
