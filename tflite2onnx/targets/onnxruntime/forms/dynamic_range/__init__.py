"""Forms of products of float data and integer weights."""
