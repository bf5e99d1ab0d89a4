"""What is known of Unity Sentis."""
