"""Forms of convolutions."""
