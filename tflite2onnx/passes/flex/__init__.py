"""TensorFlow operators that TFLite has under another name."""
