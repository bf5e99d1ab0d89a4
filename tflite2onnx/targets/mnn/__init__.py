"""What is known of MNN."""
