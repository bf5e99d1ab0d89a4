"""Models for any runtime of ONNX."""
