"""ONNX models in runtimes other than the installed ONNX Runtime, in separate processes."""
