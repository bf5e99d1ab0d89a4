"""What is known of Hailo's compiler."""
