"""Graphs as text: a line for each operator.

    inputs %0: float32[batch,3]
    %1: float32[batch,3] = ADD(%0, [1.0, 2.0, 3.0], fused_activation_function=RELU)
    return %1

Tensors are numbered in order of appearance. Quantized elements have a scale and a zero point,
`int8(0.5, 3)[2,3]`. A constant is written where it is read: a small constant as its elements,
`int64([3, 5])`, without the type if the type is float32, int32 or bool; any other constant as its
type, `float32[64,3]`. The lines of sub-graphs are indented below the operator that runs them.
"""

from collections.abc import Collection, Iterator

from tflite2onnx.graph import Graph, Op
from tflite2onnx.tensor import DType, Tensor

_FEW = 8  # The largest number of elements of a constant that are shown.
# Values of options that are not shown: most options have one of them by default.
_UNSET = ("", "0", "False", "NONE", "()", "[]")
_PLAIN = (DType.FLOAT32, DType.INT32, DType.BOOL)  # types that the text of the elements implies


class _Writer:
    """Numbers tensors in order of appearance: %0, %1, ..."""

    def __init__(self, shown: Collection[str] | None) -> None:
        self._names: dict[Tensor, str] = {}
        self._shown = shown

    def write_graph(self, graph: Graph) -> Iterator[str]:
        """Yield the lines of a graph; the lines of its sub-graphs are indented."""
        yield f"inputs {', '.join(map(self._declare, graph.inputs))}".rstrip()
        for op in graph.ops:
            yield self._write_op(op)
            for inner in op.graphs:
                yield from (f"    {line}" for line in self.write_graph(inner))
        yield f"return {', '.join(map(self._write_operand, graph.outputs))}"

    def _write_op(self, op: Op) -> str:
        arguments = [self._write_operand(t) for t in op.inputs]
        options = {**op.options, **(op.made.list_set() if op.made else {})}
        if self._shown is not None and op.made:
            options |= vars(op.made)
        for name in options if self._shown is None else self._shown:
            value = str(options.get(name)).replace(" ", "")
            if name in options and (self._shown is not None or value not in _UNSET):
                arguments.append(f"{name}={value}")
        outputs = ", ".join(map(self._declare, op.outputs))
        return f"{outputs} = {op.code}({', '.join(arguments)})".removeprefix(" = ")

    def _declare(self, tensor: Tensor) -> str:
        return f"{self._write_name(tensor)}: {_write_type(tensor)}"

    def _write_name(self, tensor: Tensor) -> str:
        return self._names.setdefault(tensor, f"%{len(self._names)}")

    def _write_operand(self, tensor: Tensor | None) -> str:
        if tensor is None:
            return "none"
        if tensor.data is None:
            return self._write_name(tensor)
        if tensor.data.size > _FEW or tensor.quantization is not None:
            return _write_type(tensor)
        elements = str(tensor.data.tolist())
        return elements if tensor.dtype in _PLAIN else f"{tensor.dtype.label}({elements})"


def _write_type(tensor: Tensor) -> str:
    return f"{tensor.dtype.label}{_write_scale(tensor)}[{','.join(map(str, tensor.sizes))}]"


def _write_scale(tensor: Tensor) -> str:
    quantization = tensor.quantization
    if quantization is None:
        return ""
    if quantization.per_axis:
        return f"(axis {quantization.axis})"
    return f"({quantization.scale.item():g}, {quantization.zero_point.item()})"


def write_graph(graph: Graph, shown: Collection[str] | None = None) -> str:
    """Return a graph as text, with all options that are set, or with those named in `shown`."""
    return "\n".join(_Writer(shown).write_graph(graph))
