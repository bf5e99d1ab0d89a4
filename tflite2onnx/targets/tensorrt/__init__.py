"""What is known of TensorRT."""
