"""Forms of attention, and of the caches of language models."""
