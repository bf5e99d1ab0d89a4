"""Forms of products of matrices."""
