"""LiteRT's kernels for language models (odml.*), which its interpreter needs to register."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ai_edge_litert import pywrap_genai_ops
from ai_edge_litert.interpreter import InterpreterWithCustomOps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.runtimes import Array


def run_litert(data: bytes, *runs: Sequence[Array]) -> list[list[Array]]:
    """Return LiteRT's outputs of consecutive runs."""
    interpreter = InterpreterWithCustomOps(
        custom_op_registerers=[pywrap_genai_ops.GenAIOpsRegisterer],
        model_content=data,
        num_threads=1,
    )
    interpreter.allocate_tensors()
    made = []
    for inputs in runs:
        for port, value in zip(interpreter.get_input_details(), inputs, strict=True):
            interpreter.set_tensor(port["index"], value)
        interpreter.invoke()
        ports = interpreter.get_output_details()
        made.append([interpreter.get_tensor(port["index"]) for port in ports])
    return made
