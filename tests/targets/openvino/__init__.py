"""Forms and rules for OpenVINO."""
