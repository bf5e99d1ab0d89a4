"""Containers: files with several models, such as bundles and those of language models."""
