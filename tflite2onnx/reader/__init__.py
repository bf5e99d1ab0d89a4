"""The bytes of a file become a Model; no other module reads the file."""
