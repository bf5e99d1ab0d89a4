"""Damaged models, and a separate process that converts them safely."""
