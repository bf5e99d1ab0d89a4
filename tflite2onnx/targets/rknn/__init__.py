"""What is known of RKNN."""
