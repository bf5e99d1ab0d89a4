"""Real models: the text of their ONNX graphs, budgets of their cost, comparison with LiteRT."""
