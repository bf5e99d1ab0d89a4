"""The graph after ONNX Runtime's optimizations: which operators are fused integer kernels."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import onnx
import onnxruntime


def optimize_model(model: onnx.ModelProto | bytes) -> onnx.ModelProto:
    """The graph that ONNX Runtime runs, with all its optimizations.

    The graph has operators of ONNX Runtime (QGemm, MatMulNBits, ...) beside those of ONNX. They
    depend on the processor and on the version of ONNX Runtime.
    """
    with TemporaryDirectory() as folder:
        path = Path(folder) / "optimized.onnx"
        options = onnxruntime.SessionOptions()
        options.optimized_model_filepath = str(path)
        # ONNX Runtime warns that the written file is only valid for this processor.
        options.log_severity_level = 3
        providers = ["CPUExecutionProvider"]
        data = model if isinstance(model, bytes) else model.SerializeToString()
        onnxruntime.InferenceSession(data, options, providers)
        return onnx.load_model(path)


def count_optimized_nodes(model: onnx.ModelProto | bytes) -> Counter[str]:
    """The number of nodes of each type after ONNX Runtime's optimizations."""
    return Counter(node.op_type for node in optimize_model(model).graph.node)
