"""Tests of preprocessing and postprocessing."""
