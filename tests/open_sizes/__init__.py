"""Networks with open sizes: one ONNX file each, at several sizes of each open axis."""
