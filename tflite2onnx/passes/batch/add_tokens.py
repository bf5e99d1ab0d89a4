"""Compute several tokens at once with a decoder of one token.

In a decoder only three computations depend on other tokens than the current token. ATTENTION reads
the keys and values of earlier tokens from the caches. LINEAR_ATTENTION computes the tokens in
order, and updates a state. A convolution reads a window, which has the rows of the last tokens, its
state, and the row of the token. So the tokens of a prompt are the samples of a batch. Attention
writes their keys and values into the caches, and each token sees the tokens before it, in the
caches or in the same prompt. The windows of the tokens are parts of the state and the rows of all
tokens after it; the last rows are the next state.

In a decoder of mixed precision attention is several operators. Its caches are updated with the rows
of all tokens at once, since the mask hides the rows of later tokens (`UpdateOptions`). The tokens
become rows of the matrices that are multiplied by the caches.

The scores of the next token follow from the last token of the prompt. Only these scores are
computed, because the product with the table of all tokens takes a large part of the time.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tflite2onnx.graph import Graph, Op
from tflite2onnx.made_options import UpdateOptions
from tflite2onnx.passes.batch.add_batch import Batching
from tflite2onnx.passes.batch.batch_builder import ADDED, make_list, make_tensor, require_input
from tflite2onnx.passes.batch.mixed_samples import MixedSamplesError
from tflite2onnx.passes.batch.places import Place, join_samples
from tflite2onnx.passes.rewriter import Rewriter
from tflite2onnx.passes.shape_walk import OperatorOf
from tflite2onnx.tensor import DType, Tensor

# The inputs whose second axis are tokens. ATTENTION also has a mask and the position; in its place
# LINEAR_ATTENTION has decays.
_TOKENS, _POSITION = {"ATTENTION": 3, "LINEAR_ATTENTION": 5}, 4
_MATRIX = 2  # axes


def add_tokens(
    graph: Graph, operator_of: OperatorOf, caches: Mapping[Tensor, Tensor], scores: Tensor
) -> Graph:
    """Return a decoder of any number of tokens that follow each other.

    The inputs of the decoder are [1, tokens] in place of [1, 1]. `caches` are the inputs and
    outputs that all tokens share: caches of attention, and states. The output `scores` has the
    scores of the last token.

    Raises:
        MixedSamplesError: tokens depend on each other in another way than by attention and windows.
    """
    decoder = _Tokens(graph, operator_of, caches, scores).make_graph()
    rows = [t for t in decoder.inputs if t not in caches]
    for t in rows:
        if t.shape != (1, 1):
            raise MixedSamplesError(f"{t.name} must be one number, got {list(t.shape)}")
    open_rows = {t: replace(t, shape_signature=(1, -1)) for t in rows}
    inner = {t: replace(t, name=f"{t.name}/rows") for t in rows}
    rw = Rewriter(ADDED)
    for t in rows:
        rw.op("RESHAPE", open_rows[t], make_list([-1, 1]), output=inner[t])
    ops = (*rw.ops, *(op.with_inputs(inner) for op in decoder.ops))
    inputs = tuple(open_rows.get(t, t) for t in decoder.inputs)
    tensors = dict.fromkeys(t for op in ops for t in op.tensors)
    return replace(decoder, inputs=inputs, ops=ops, tensors=(*dict.fromkeys((*inputs, *tensors)),))


class _Tokens(Batching):
    """A walk over a decoder of one token."""

    # A decoder of one token joins no tokens: BROADCAST_TO along their axis repeats a token for each
    # of its experts.
    _may_mix = False

    def __init__(
        self, graph: Graph, operator_of: OperatorOf, caches: Mapping[Tensor, Tensor], scores: Tensor
    ) -> None:
        super().__init__(graph, operator_of, {}, {}, caches)
        self._following = {*caches.values(), scores}
        self._product = _find_product(scores, graph)
        attended = {
            t for op in graph.ops if _writes_caches(op) or _is_causal(op) for t in op.inputs
        }
        self._states = {t: end for t, end in caches.items() if t not in attended}
        self._joined: dict[Tensor, _TokenRows] = {}
        # Products with caches, and what is computed of them, row by row.
        self._rows: dict[Tensor, Place] = {}

    def _add_op(self, op: Op) -> None:
        state = self._find_state(op)
        if _writes_caches(op):
            self._add_attention(op)
        elif _is_causal(op):
            self._add_update(op)
        elif state is not None:
            self._add_window(op, state)
        elif op.outputs[0] in self._states.values():
            self._add_state(op)
        elif op.outputs[0] is self._product:
            x = require_input(op)
            super()._add_op(op.with_inputs({x: self._take_last(x)}))
        else:
            super()._add_op(self._make_rows(op))

    def _add_attention(self, op: Op) -> None:
        """Add attention; the tokens are the second axis of its first inputs."""
        position = require_input(op, _POSITION)
        tokens = [require_input(op, i) for i in range(_TOKENS[op.code])]
        if any(t not in self._places for t in (*tokens, position)):
            raise MixedSamplesError("attention must depend on the tokens", op.place)
        rows = {t: self._builder.move_samples(t, Place(1)) for t in tokens}
        self._builder.emit(op.with_inputs(rows))
        self._places[op.outputs[0]] = Place(1)

    def _add_update(self, op: Op) -> None:
        """Add an update of a cache with the rows of all tokens."""
        _, row, starts = op.present
        if row not in self._places or starts not in self._places:
            raise MixedSamplesError("the update must depend on the tokens", op.place)
        (axis,) = self._operator_of(op).find_mixed_axes(0) or ()
        rows = self._builder.move_samples(row, Place(axis))
        places = self._builder.move_to(starts, 1, (1, *starts.shape), Place(0))
        self._builder.emit(op.with_inputs({row: rows, starts: places}))

    def _make_rows(self, op: Op) -> Op:
        """Return a product with a cache whose first operand has the tokens in its rows.

        The operators after it get other operands of these rows in the same axis.
        """
        x, axis = op.operand(0), op.operand(0).rank - _MATRIX
        if op.is_builtin("BATCH_MATMUL") and x in self._places:
            if op.operand(1) in self._places or op.operand(1).has_data or op.options.adj_x:
                return op
            rows = self._builder.move_samples(x, Place(axis))
            self._rows[op.outputs[0]] = Place(axis)
            return op.with_inputs({x: rows})
        known = next((t for t in op.present if t in self._rows), None)
        alike = [t for t in dict.fromkeys(op.present) if t in self._places]
        if not known or any(t.shape[axis:] != known.shape[axis:] for t in (*alike, *op.outputs)):
            return op
        place = self._rows[known]
        self._rows[op.outputs[0]] = place
        return op.with_inputs({t: self._builder.move_samples(t, place) for t in alike})

    def _find_state(self, op: Op) -> Tensor | None:
        """Return the state that an operator joins with the row of a token, None if it reads none.

        Raises:
            MixedSamplesError: the operator reads a state in another way.
        """
        state = next((t for t in op.present if t in self._states), None)
        if state is None:
            return None
        row = op.operand(1)
        joins = op.is_builtin("CONCATENATION") and op.inputs == (state, row) and row in self._places
        axis = int(op.options.axis) % state.rank if joins else 0
        is_plain = op.activation == "NONE" and row.dtype in (DType.FLOAT16, DType.FLOAT32)
        if not axis or row.shape[axis] != 1 or state.shape[0] != 1 or not is_plain:
            of = "neither attention nor a window"
            raise MixedSamplesError(f"it reads {state.name}, a state of {of}", op.place)
        return state

    def _add_window(self, op: Op, state: Tensor) -> None:
        """Add the windows of all tokens: parts of the state and the rows after it."""
        builder, row, window = self._builder, op.operand(1), op.outputs[0]
        axis = int(op.options.axis) % state.rank
        rows = builder.move_samples(row, Place(axis))
        joined = builder.add(
            "CONCATENATION", [state, rows], make_tensor(state, window.shape), axis=axis
        )
        self._joined[window] = _TokenRows(joined, state, axis)
        sizes = builder.list_sizes(join_samples(row.shape, Place(axis)), rest=False)
        count = window.shape[axis]
        parts = [
            builder.add(
                "SLICE", [joined, _make_begin(state, axis, i), sizes], make_tensor(row, row.shape)
            )
            for i in range(count)
        ]
        after = axis + 1
        packed = make_tensor(row, (*row.shape[:after], count, *row.shape[after:]))
        builder.add("PACK", parts, packed, axis=after, values_count=count)
        self._places[packed] = Place(axis)
        builder.move_to(packed, 1, window.shape, Place(0), window)

    def _add_state(self, op: Op) -> None:
        """Add the next state: the last rows."""
        joined = self._joined.get(op.operand(0))
        if joined is None or not op.is_builtin("SLICE") or not _takes_last(op, joined):
            raise MixedSamplesError("the state must be the end of its window", op.place)
        first = make_list([0] * joined.axis)
        rest = make_list([0] * (joined.state.rank - joined.axis - 1))
        begin = Tensor("begin", (joined.state.rank,), DType.INT32)
        parts = [t for t in (first, self._builder.count, rest) if t.elements]
        self._builder.add("CONCATENATION", parts, begin, axis=0)
        inputs = [joined.tensor, begin, make_list(joined.state.shape)]
        self._builder.add("SLICE", inputs, op.outputs[0])

    def _take_last(self, x: Tensor) -> Tensor:
        axis = self._places[x].axis
        if self._builder.find_sample_shape(x)[axis] != 1:
            raise MixedSamplesError(f"{x.name} must have the tokens in an axis")
        last = Tensor("last", (1,), DType.INT32)
        self._builder.add("SUB", [self._builder.count, make_list([1])], last)
        sample = make_tensor(x, self._builder.find_sample_shape(x))
        return self._builder.add("GATHER", [x, last], sample, axis=axis, batch_dims=0)


class _TokenRows(NamedTuple):
    """A state of a convolution and the rows of all tokens after it, along an axis."""

    tensor: Tensor
    state: Tensor
    axis: int


def _writes_caches(op: Op) -> bool:
    return op.is_builtin(*_TOKENS) and len(op.outputs) > 1


def _is_causal(op: Op) -> bool:
    return op.is_builtin("DYNAMIC_UPDATE_SLICE") and op.read_made(UpdateOptions).is_causal


def _make_begin(state: Tensor, axis: int, index: int) -> Tensor:
    return make_list([index if i == axis else 0 for i in range(state.rank)])


def _takes_last(op: Op, joined: _TokenRows) -> bool:
    """Return whether a SLICE of a window leaves out its first row."""
    begin, size = op.operand(1), op.operand(2)
    if not begin.has_data or not size.has_data or op.outputs[0].shape != joined.state.shape:
        return False
    expected = _make_begin(joined.state, joined.axis, 1).values
    return bool(np.array_equal(begin.values, expected))


def _find_product(scores: Tensor, graph: Graph) -> Tensor:
    """Return the product that alone determines the scores; MixedSamplesError if there is none."""
    while True:
        op = graph.producers.find(scores)
        sources = [t for t in op.present if not t.is_constant]
        if op.is_builtin("FULLY_CONNECTED", "BATCH_MATMUL") and op.operand(0) in sources:
            return scores
        if len(sources) != 1 or op.graphs:
            raise MixedSamplesError(
                f"{scores.name} must be a product with the weights of all tokens"
            )
        (scores,) = sources
