"""ONNX nodes in the making: the only place that knows opsets."""
