"""WHILE loops that are recurrent layers."""
