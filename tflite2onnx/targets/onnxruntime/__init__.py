"""What is known of ONNX Runtime: its options, its forms of operators, and their costs."""
