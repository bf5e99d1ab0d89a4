"""What is known of onnxruntime-genai, which runs language models."""
