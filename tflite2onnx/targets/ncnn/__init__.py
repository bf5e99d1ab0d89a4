"""What is known of ncnn."""
