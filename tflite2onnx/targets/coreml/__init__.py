"""What is known of CoreML."""
