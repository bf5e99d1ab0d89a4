"""Files, processes, names and the console, without knowledge of models."""
