"""What several families of operators share."""
