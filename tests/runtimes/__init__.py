"""ONNX models in runtimes other than the installed ONNX Runtime, each in a process of its own."""
