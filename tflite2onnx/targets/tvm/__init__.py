"""What is known of TVM."""
