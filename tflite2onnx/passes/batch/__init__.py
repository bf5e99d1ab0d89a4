"""A batch of independent samples."""
