"""What is known of NNAPI."""
