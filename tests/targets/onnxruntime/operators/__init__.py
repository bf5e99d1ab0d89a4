"""Operators with nodes of ONNX Runtime."""
