"""Forms of ONNX nodes."""
