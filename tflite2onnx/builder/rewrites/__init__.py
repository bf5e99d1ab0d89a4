"""Rewrites of the nodes of a graph, before the model is written."""
