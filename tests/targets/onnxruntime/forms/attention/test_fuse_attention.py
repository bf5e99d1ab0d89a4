"""attention/fuse_attention.py: attention with several heads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.support import Build, check
from tests.support.fusions import count_optimized_nodes
from tests.support.graph_text import check_pass, check_unchanged, eliminate_dead_after, read_graph
from tflite2onnx import convert
from tflite2onnx.targets.onnxruntime.forms.attention.fuse_attention import fuse_attention
from tflite2onnx.targets.onnxruntime.operators.attention import AttentionOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.support import Tensor

HEADS_FIRST, SWAPPED = (0, 2, 1, 3), (0, 1, 3, 2)


@dataclass
class Spelled(Build):
    """Operators of attention, and the sizes of its operands."""

    batch: int = 1
    rows: int = 5
    heads: int = 3
    depth: int = 4

    def __post_init__(self) -> None:
        super().__init__()

    @property
    def scores(self) -> tuple[int, int, int, int]:
        return self.batch, self.heads, self.rows, self.rows

    def transpose(self, x: Tensor, order: Sequence[int]) -> Tensor:
        shape = [x.shape[i] for i in order]
        return self.op("TRANSPOSE", [x, self.constant(np.array(order, np.int32))], [shape])[0]

    def reshape(self, x: Tensor, *shape: int) -> Tensor:
        constant = self.constant(np.array(shape, np.int32))
        return self.op("RESHAPE", [x, constant], [shape])[0]

    def apply(self, code: str, x: Tensor, number: float) -> Tensor:
        return self.op(code, [x, self.constant(np.float32(number))], [x.shape])[0]

    def multiply(self, a: Tensor, b: Tensor, *, adj_y: bool = False) -> Tensor:
        shape = (*a.shape[:-1], b.shape[-2 if adj_y else -1])
        return self.op("BATCH_MATMUL", [a, b], [shape], adj_x=False, adj_y=adj_y)[0]

    def softmax(self, x: Tensor, *, beta: float = 1.0) -> Tensor:
        return self.op("SOFTMAX", [x], [x.shape], beta=beta)[0]

    def add(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.op("ADD", [x, mask], [x.shape])[0]

    def split_heads(self) -> Tensor:
        """Return an input whose last axis is split into heads."""
        x = self.input([self.batch, self.rows, self.heads * self.depth])
        return self.reshape(x, self.batch, self.rows, self.heads, self.depth)

    def return_joined(self, y: Tensor) -> None:
        """Join the heads of the result."""
        y = self.transpose(y, HEADS_FIRST)
        self.output(self.reshape(y, self.batch, self.rows, self.heads * self.depth))


def spell_torch(m: Spelled, *, masked: bool) -> None:
    """Scale queries and keys, as ai-edge-torch does."""
    q, k, v = (m.transpose(m.split_heads(), HEADS_FIRST) for _ in range(3))
    root = m.depth**-0.25
    k = m.transpose(k, SWAPPED)
    (k,) = m.op("MUL", [m.constant(np.float32(root)), k], [k.shape])
    scores = m.multiply(m.apply("MUL", q, root), k)
    if masked:
        scores = m.add(scores, m.input([m.batch, 1, m.rows, m.rows]))
    m.return_joined(m.multiply(m.softmax(scores), v))


def spell_keras(m: Spelled, *, masked: bool) -> None:
    """Multiply keys by queries, as Keras does, and move the result."""
    q, k, v = (m.split_heads() for _ in range(3))
    q = m.transpose(m.apply("MUL", q, m.depth**-0.5), (0, 2, 3, 1))
    scores = m.transpose(m.multiply(m.transpose(k, HEADS_FIRST), q), SWAPPED)
    if masked:
        scores = m.add(scores, m.input([m.batch, 1, 1, m.rows]))
    m.return_joined(m.multiply(m.softmax(scores), m.transpose(v, HEADS_FIRST)))


def spell_flat(m: Spelled, *, masked: bool) -> None:
    """Divide the scores, and multiply matrices without an axis of the batch."""
    q, k, v = (m.transpose(m.split_heads(), HEADS_FIRST) for _ in range(3))
    flat = m.batch * m.heads, m.rows, m.depth
    scores = m.multiply(m.reshape(q, *flat), m.reshape(k, *flat), adj_y=True)
    scores = m.reshape(m.apply("DIV", scores, m.depth**0.5), *m.scores)
    if masked:
        mask = np.triu(np.full(m.scores[2:], -np.inf, np.float32), 1)
        scores = m.add(scores, m.constant(mask.reshape(1, 1, *mask.shape)))
    weights = m.reshape(m.softmax(scores), *flat[:2], m.rows)
    y = m.multiply(weights, m.reshape(v, *flat))
    m.return_joined(m.reshape(y, *m.scores[:3], m.depth))


SPELLINGS = [spell_torch, spell_keras, spell_flat]


def spell(spelling: Callable[..., None], *, batch: int = 1, masked: bool = True) -> bytes:
    m = Spelled(batch)
    spelling(m, masked=masked)
    return m.bytes()


fuse = eliminate_dead_after(fuse_attention)


def test_operators_become_one_attention() -> None:
    before = """
        inputs %0: float32[1,5,12], %1: float32[1,5,12], %2: float32[1,5,12], %3: float32[1,1,5,5]
        %4: float32[1,5,3,4] = RESHAPE(%0, [1, 5, 3, 4])
        %5: float32[1,3,5,4] = TRANSPOSE(%4, [0, 2, 1, 3])
        %6: float32[1,5,3,4] = RESHAPE(%1, [1, 5, 3, 4])
        %7: float32[1,3,5,4] = TRANSPOSE(%6, [0, 2, 1, 3])
        %8: float32[1,5,3,4] = RESHAPE(%2, [1, 5, 3, 4])
        %9: float32[1,3,5,4] = TRANSPOSE(%8, [0, 2, 1, 3])
        %10: float32[1,3,4,5] = TRANSPOSE(%7, [0, 1, 3, 2])
        %11: float32[1,3,4,5] = MUL(0.7071067690849304, %10)
        %12: float32[1,3,5,4] = MUL(%5, 0.7071067690849304)
        %13: float32[1,3,5,5] = BATCH_MATMUL(%12, %11)
        %14: float32[1,3,5,5] = ADD(%13, %3)
        %15: float32[1,3,5,5] = SOFTMAX(%14)
        %16: float32[1,3,5,4] = BATCH_MATMUL(%15, %9)
        %17: float32[1,5,3,4] = TRANSPOSE(%16, [0, 2, 1, 3])
        %18: float32[1,5,12] = RESHAPE(%17, [1, 5, 12])
        return %18
    """
    after = """
        inputs %0: float32[1,5,12], %1: float32[1,5,12], %2: float32[1,5,12], %3: float32[1,1,5,5]
        %4: float32[1,5,3,4] = RESHAPE(%0, [1, 5, 3, 4])
        %5: float32[1,5,3,4] = RESHAPE(%1, [1, 5, 3, 4])
        %6: float32[1,5,3,4] = RESHAPE(%2, [1, 5, 3, 4])
        %7: float32[1,5,3,4] = ATTENTION(%4, %5, %6, %3)
        %8: float32[1,5,12] = RESHAPE(%7, [1, 5, 12])
        return %8
    """
    check_pass(fuse, read_graph(spell(spell_torch)), before, after)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("batch", [1, 2])
def test_all_spellings_of_attention_equal_litert(
    spelling: Callable[..., None], batch: int, *, masked: bool
) -> None:
    """The results equal LiteRT's, also as Attention, whose mask must have all rows."""
    data = spell(spelling, batch=batch, masked=masked)
    graph = fuse(read_graph(data))
    (scale,) = (op.read_made(AttentionOptions).scale for op in graph.ops if op.code == "ATTENTION")
    assert scale == pytest.approx(0.5)
    check(data)
    check(data, opset=23)
    nodes = count_optimized_nodes(convert(data, opset=23).model)
    assert nodes["Attention"] == (not masked or spelling is not spell_keras), nodes


@pytest.mark.parametrize("shared", [1, 3])
def test_shared_heads_need_no_expand(shared: int) -> None:
    """Keys and values may be repeated for several heads; `share_heads` recognises one."""
    m = Spelled(heads=6)
    q = m.transpose(m.split_heads(), HEADS_FIRST)
    k, v = (m.transpose(m.input([1, m.rows, shared, m.depth]), HEADS_FIRST) for _ in range(2))
    shape = [1, shared, 6 // shared, m.rows, m.depth]
    sizes = m.constant(np.array(shape, np.int32))
    split = [m.reshape(x, 1, shared, 1, m.rows, m.depth) for x in (k, v)]
    k, v = (m.op("BROADCAST_TO", [x, sizes], [shape])[0] for x in split)
    k, v = (m.reshape(x, 1, 6, m.rows, m.depth) for x in (k, v))
    k = m.apply("MUL", m.transpose(k, SWAPPED), 0.5)
    m.return_joined(m.multiply(m.softmax(m.multiply(q, k)), v))
    data = m.bytes()
    check(data)
    check(data, opset=23)
    nodes = count_optimized_nodes(convert(data, opset=23).model)
    assert nodes["Attention"] == (shared > 1), nodes
    assert "Expand" not in nodes


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_no_operand_is_moved(spelling: Callable[..., None]) -> None:
    """ONNX Runtime's products read the heads where they are, and apply the scale."""
    nodes = count_optimized_nodes(convert(spell(spelling)).model)
    assert nodes["Transpose"] == 1, nodes  # of the result
    assert nodes["FusedMatMul"] == 2, nodes
    assert "Mul" not in nodes
    assert "Div" not in nodes


def test_canonical_form_has_no_attention_node() -> None:
    model = convert(spell(spell_torch), forms="canonical", opset=23).model
    assert "Attention" not in {node.op_type for node in model.graph.node}


def spell_scores(m: Spelled, kind: str) -> Tensor:
    """Return something similar to the scores of attention."""
    if kind == "no product":
        return m.input(m.scores)
    x = m.input([1, m.rows, m.heads, m.depth])
    q = m.transpose(x, SWAPPED if kind == "other axes" else HEADS_FIRST)
    if kind == "other axes":
        q = m.reshape(q, 1, m.heads, m.rows, m.depth)
    factor = m.input(q.shape) if kind == "computed factor" else m.constant(np.float32(2))
    activation = "RELU" if kind == "activation of queries" else "NONE"
    (q,) = m.op("MUL", [q, factor], [q.shape], fused_activation_function=activation)
    heads = 1 if kind == "shared keys" else m.heads
    k = m.transpose(m.input([1, m.rows, heads, m.depth]), HEADS_FIRST)
    scores = m.multiply(q, k, adj_y=True)
    if kind.endswith("factor of scores"):
        scores = m.apply("MUL", scores, -1 if kind.startswith("negative") else 0)
    if kind != "activation of scores":
        return scores
    mask = m.input([1, 1, m.rows, m.rows])
    return m.op("ADD", [scores, mask], [m.scores], fused_activation_function="RELU")[0]


def refuse(m: Spelled, kind: str) -> None:
    """Spell something similar to attention."""
    v = m.transpose(m.split_heads(), HEADS_FIRST)
    weights = m.softmax(spell_scores(m, kind), beta=2.0 if kind == "beta" else 1.0)
    if kind == "factor of weights":
        weights = m.apply("MUL", weights, 2)
    if kind == "factor of values":
        v = m.apply("MUL", v, 2)
    if kind == "weights returned":
        m.output(weights)
    m.return_joined(m.multiply(weights, v))


@pytest.mark.parametrize(
    "kind",
    [
        "activation of queries",
        "activation of scores",
        "beta",
        "computed factor",
        "factor of values",
        "factor of weights",
        "negative factor of scores",
        "no product",
        "other axes",
        "shared keys",
        "weights returned",
        "zero factor of scores",
    ],
)
def test_graphs_that_differ_from_attention_stay_unchanged(kind: str) -> None:
    m = Spelled()
    refuse(m, kind)
    graph = read_graph(m.bytes())
    check_unchanged(fuse_attention, graph)
    check(m.bytes())


def test_dynamic_batch_gives_no_attention_node() -> None:
    """The sizes must be fixed."""
    m = Spelled()
    x = m.input([1, 5, 3, 4], shape_signature=[-1, 5, 3, 4])
    q, k, v = (m.transpose(x, HEADS_FIRST) for _ in range(3))
    m.output(m.transpose(m.multiply(m.softmax(m.multiply(q, k, adj_y=True)), v), HEADS_FIRST))
    check(m.bytes())
    names = {
        static: {n.op_type for n in convert(m.bytes(), opset=23, static=static).model.graph.node}
        for static in (False, True)
    }
    assert "Attention" in names[True]
    assert "Attention" not in names[False]


def test_products_without_softmax_stay() -> None:
    m = Spelled()
    q, k = (m.transpose(m.split_heads(), HEADS_FIRST) for _ in range(2))
    m.output(m.multiply(q, k, adj_y=True))
    graph = read_graph(m.bytes())
    assert fuse_attention(graph) is graph
