"""What is known of ONNX Runtime Web."""
