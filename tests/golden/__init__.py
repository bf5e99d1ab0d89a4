"""Real models: the text of their ONNX graphs, what these may cost, and whether LiteRT agrees."""
