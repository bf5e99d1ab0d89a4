"""Containers: files with several models, such as bundles and the files of language models."""
