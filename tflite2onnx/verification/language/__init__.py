"""Verification of language models: tokens that both runtimes choose."""
