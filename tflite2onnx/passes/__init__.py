"""Passes: each takes a TFLite graph or model and returns an equivalent one."""
