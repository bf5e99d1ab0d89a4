"""What is known of tract."""
