"""Functions and base classes that several families of operators share."""
