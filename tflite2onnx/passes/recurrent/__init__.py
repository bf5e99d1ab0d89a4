"""WHILE loops become recurrent layers."""
