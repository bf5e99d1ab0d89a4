"""Operators on images: convolution, pooling, resizing, detection."""
