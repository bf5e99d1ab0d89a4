"""Passes that change how tensors are quantized."""
