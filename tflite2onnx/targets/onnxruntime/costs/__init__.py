"""The time of operators in ONNX Runtime."""
