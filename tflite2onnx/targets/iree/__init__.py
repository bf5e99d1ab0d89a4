"""What is known of IREE."""
