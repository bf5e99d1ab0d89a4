"""What is known of ONNX Runtime's WebGPU provider."""
