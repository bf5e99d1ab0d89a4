"""The construction of ONNX nodes; the only package that depends on opsets."""
