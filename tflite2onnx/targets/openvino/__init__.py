"""What is known of OpenVINO."""
