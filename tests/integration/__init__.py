"""Tests of the documents, the examples and published models."""
