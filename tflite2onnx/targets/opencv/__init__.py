"""What is known of OpenCV."""
