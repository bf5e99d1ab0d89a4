"""Read the bytes of a file as a Model; no other package parses the file."""
