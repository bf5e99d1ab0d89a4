"""Networks with dynamic sizes: one ONNX file each, at several sizes of each dynamic axis."""
