"""Passes that replace several operators by one, and operators by forms that run faster."""
