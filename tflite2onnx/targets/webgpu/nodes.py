"""Nodes that the GPU computes right, where the provider has no kernel, or an inexact one.

Round has none: each one would fetch its data from the GPU. A sum with a number whose last digit is
1 has no fraction, so that the sum itself is rounded, halves to even. GPUs round sums as CPUs do.

Sin and Cos are the functions of the shader language, which may be off by 2 ** -11 from -pi to pi,
and by more outside (WebGPU Shading Language, "Floating Point Accuracy"). Sums and products are
rounded as on CPUs.
"""

import math
from collections.abc import Collection, Sequence

from tflite2onnx.builder.builder import Builder
from tflite2onnx.builder.node_passes import NodePass, Rewritten, drop_dead_nodes, replace_nodes
from tflite2onnx.builder.nodes import Node, Value, require_onnx_type
from tflite2onnx.emit import PLAIN_PASSES
from tflite2onnx.tensor import DType

# From 2 ** 23 to 2 ** 24 neighbours of float32 differ by 1. A number under 2 ** 22 keeps the sum in
# this range, and a larger one changes by 2 ** -22 of itself at most.
_WHOLE = 1.5 * 2**23
_ARITHMETIC = ("Add", "Atan", "Div", "Mul", "Sub")
# A turn, 2 pi, in two parts. The first has few digits: its products with turns up to 2 ** 16 are
# exact.
_TURN = (201 / 32, 2 * math.pi - 201 / 32)
_QUARTER = 0.25  # of a turn
# sin(r) = r + r * z * (the sum of these numbers by z ** 5 to z ** 0), where z = r * r. They are
# least squares from -pi to pi, weighted until the largest error was 1.5e-9; in float32 it is 6e-7.
_SINE = (
    *(1.35261885e-10, -2.47024747e-8, 2.75328534e-6),
    *(-0.000198403781, 0.00833331794, -0.166666657),
)


def _spell_functions(g: Builder, nodes: Sequence[Node], _: Sequence[Value]) -> Rewritten:
    """Return nodes with sums and products in place of functions of float32."""
    reals = _find_reals(g, nodes)
    return replace_nodes(nodes, lambda node: _spell_node(g, node, reals))


def _find_reals(g: Builder, nodes: Sequence[Node]) -> set[Value]:
    """Return the values that are known to be float32."""
    found = {value for value, (dtype, _) in g.types.items() if dtype is DType.FLOAT32}
    real = require_onnx_type(DType.FLOAT32)
    for node in nodes:
        reads = any(x in found or x.dtype is DType.FLOAT32 for x in node.present)
        if node.attributes.get("to") == real or (reads and node.op_type in _ARITHMETIC):
            found.update(node.outputs)
    return found


def _spell_node(g: Builder, node: Node, reals: Collection[Value]) -> Sequence[Node] | str:
    """Return the nodes in place of one; only functions of `reals`, which are float32, change."""
    if node.op_type not in ("Round", "Sin", "Cos"):
        return ""
    if not any(value in reals for value in (*node.present, *node.outputs)):
        return "not known to be float32"
    spelling = _Spelling(g)
    if node.op_type == "Round":
        spelling.add_rounding(node.present[0])
    else:
        spelling.add_sine(node.present[0], _QUARTER if node.op_type == "Cos" else 0)
    *before, last = spelling.nodes
    return [*before, last._replace(outputs=node.outputs)]


class _Spelling:
    """The sums and products that stand for a function."""

    def __init__(self, g: Builder) -> None:
        self._builder = g
        self.nodes: list[Node] = []

    def add(self, op_type: str, x: Value, y: Value | float) -> Value:
        """Add a node, whose result is returned."""
        operand = y if isinstance(y, Value) else self._builder.scalar(y, DType.FLOAT32)
        self.nodes.append(Node(op_type, (x, operand), (Value(),), {}))
        return self.nodes[-1].outputs[0]

    def add_rounding(self, x: Value) -> Value:
        return self.add("Sub", self.add("Add", x, _WHOLE), _WHOLE)

    def add_sine(self, x: Value, ahead: float) -> Value:
        """Add the sine of an angle and a part of a turn."""
        turns = self.add("Mul", x, 1 / sum(_TURN))
        if ahead:
            turns = self.add("Add", turns, ahead)
        turns = self.add_rounding(turns)
        if ahead:
            turns = self.add("Sub", turns, ahead)
        rest = x
        for part in _TURN:
            rest = self.add("Sub", rest, self.add("Mul", turns, part))
        square = self.add("Mul", rest, rest)
        total = self.add("Mul", square, _SINE[0])
        for number in _SINE[1:]:
            total = self.add("Mul", self.add("Add", total, number), square)
        return self.add("Add", self.add("Mul", total, rest), rest)


PASSES: tuple[NodePass, ...] = (
    # Functions that nothing reads need no sums.
    drop_dead_nodes,
    _spell_functions,
    *PLAIN_PASSES,
)
