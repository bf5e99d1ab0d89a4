"""What ONNX Runtime makes of a graph: which operators it fuses into integer kernels."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import onnx
import onnxruntime


def optimize_model(model: onnx.ModelProto | bytes) -> onnx.ModelProto:
    """The graph that ONNX Runtime runs, with all its optimizations.

    Its own operators (QGemm, MatMulNBits, ...) stand beside those of ONNX. Which it has is a
    matter of the processor and of its version.
    """
    with TemporaryDirectory() as folder:
        path = Path(folder) / "optimized.onnx"
        options = onnxruntime.SessionOptions()
        options.optimized_model_filepath = str(path)
        # It warns that the file it writes fits this processor only.
        options.log_severity_level = 3
        providers = ["CPUExecutionProvider"]
        data = model if isinstance(model, bytes) else model.SerializeToString()
        onnxruntime.InferenceSession(data, options, providers)
        return onnx.load_model(path)


def count_optimized_nodes(model: onnx.ModelProto | bytes) -> Counter[str]:
    """How many nodes of each type are left when ONNX Runtime has optimized the graph."""
    return Counter(node.op_type for node in optimize_model(model).graph.node)
