"""Damaged models, and a process that converts them where it can do no harm."""
