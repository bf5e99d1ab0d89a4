"""What is known of QNN."""
