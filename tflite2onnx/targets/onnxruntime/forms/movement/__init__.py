"""Forms of operators that move elements."""
