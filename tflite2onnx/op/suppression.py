"""NON_MAX_SUPPRESSION_V4 and V5: the best boxes, without those that overlap better ones."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from tflite2onnx.builder import Body, alive
from tflite2onnx.op.base import Builder, Category, Operator, OperatorError, Value, View
from tflite2onnx.op.parameters import affordable, expect, integer
from tflite2onnx.tensor import DType

_CORNERS = 4
_BOXES, _SCORES, _MOST, _OVERLAP, _LEAST, _SIGMA = range(6)


class NonMaxSuppression(Operator):
    """Indices of boxes in the sequence of their scores, of V5 the scores too, and their number.

    Boxes are dropped that overlap by no less than a threshold. With a sigma, the scores of all
    others fall the more they overlap: that takes a loop, as ONNX's NonMaxSuppression knows no
    such thing. What is left of the outputs is 0. Which of several equal scores comes first is the
    runtime's affair: the kernel leaves it to a heap.
    """

    codes = ("NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5")
    category = Category.TERMINATE
    many_outputs = True

    @property
    def _is_soft(self) -> bool:
        return self.op.code == "NON_MAX_SUPPRESSION_V5"

    @cached_property
    def _most(self) -> int:
        most = integer(self, _MOST)
        affordable(most)
        if most < 0:
            message = f"{most} boxes are to be found"
            raise OperatorError(message)
        return most

    def check(self) -> None:
        boxes, soft = self.input(_BOXES), self._is_soft
        count = boxes.shape[0] if boxes.rank else 0
        expect(boxes, (count, _CORNERS), DType.FLOAT32)
        expect(self.input(_SCORES), (count,), DType.FLOAT32)
        expect(self.input(_MOST), (), DType.INT32)
        if len(self.op.inputs) != 5 + soft or len(self.op.outputs) != 2 + soft or not count:
            sizes = len(self.op.inputs), len(self.op.outputs)
            message = "{} boxes, {} inputs and {} outputs".format(count, *sizes)
            raise OperatorError(message)
        for index in range(_OVERLAP, len(self.op.inputs)):
            expect(self.input(index), (), DType.FLOAT32)
        sigma = self._constant(_SIGMA) if soft else None
        if sigma is not None and sigma < 0:
            message = f"sigma is {sigma}"
            raise OperatorError(message)
        indices, *scores, number = self.op.outputs
        expect(indices, (self._most,), DType.INT32)
        expect(number, (), DType.INT32)
        for tensor in scores:
            expect(tensor, (self._most,), DType.FLOAT32)

    def _constant(self, index: int) -> np.float32 | None:
        """Return a number if it is known."""
        data = self.input(index).data
        return None if data is None else np.float32(data.reshape(-1)[0])

    def emit(
        self, g: Builder, ys: tuple[View, ...], boxes: View, scores: View, _: View,
        overlap: View, least: View, sigma: View | None = None,
    ) -> tuple[Value, ...]:  # fmt: skip
        known, soft = self._constant(_OVERLAP), self._is_soft and self._constant(_SIGMA) != 0
        if known is None or known <= 0 or soft:
            indices, values = self._one_by_one(g, boxes, scores, overlap, least, sigma)
        else:
            indices = self._at_once(g, boxes, scores, known, least)
            values = g.Gather(scores, indices)
        number = g.Shape(indices)
        pads = g.Concat(g.ints([0]), g.Sub(g.ints([self._most]), number), axis=0)
        made = [g.Pad(g.cast(indices, DType.INT32), pads, g.scalar(0, DType.INT32))]
        if self._is_soft:
            made.append(g.Pad(values, pads, g.scalar(0, DType.FLOAT32)))
        return (*made, g.cast(g.Squeeze(number, g.ints([0])), DType.INT32))

    def _at_once(
        self, g: Builder, boxes: View, scores: View, overlap: np.float32, least: View
    ) -> Value:
        # ONNX drops boxes that overlap by more than a threshold, of at most 1.
        below = np.nextafter(min(overlap, np.float32(1)), np.float32(0))
        found = g.NonMaxSuppression(
            g.Unsqueeze(boxes, g.ints([0])), g.Unsqueeze(scores, g.ints([0, 1])),
            g.ints([self._most]), g.constant(np.array([below], np.float32)), least.reshaped((1,)),
        )  # fmt: skip
        return g.Gather(found, g.scalar(2, DType.INT64), axis=1)

    def _one_by_one(
        self, g: Builder, boxes: View, scores: View, overlap: View, least: View,
        sigma: View | None,
    ) -> tuple[Value, Value]:  # fmt: skip
        """Return indices and scores of boxes that are found in a loop, the best one in each round.

        The scores of boxes that are out are less than all others. The kernel lets a score fall
        for all better boxes only when it is the highest; what comes of that is the same.
        """
        zero, out = g.scalar(0, DType.FLOAT32), g.scalar(-np.inf, DType.FLOAT32)
        first = g.Where(g.Greater(scores, least), scores, out)
        frame = _Frame.of(g, boxes)
        scale = None
        if sigma is not None:
            scale = g.Div(g.scalar(-0.5, DType.FLOAT32), sigma)
            scale = g.Where(g.Greater(sigma, zero), scale, zero)
        inner, size = g.nested(), boxes.shape[:1]
        number, go = (g.typed(Value(dtype=t), t, ()) for t in (DType.INT64, DType.BOOL))
        have = g.typed(Value(dtype=DType.FLOAT32), DType.FLOAT32, size)
        best = inner.ArgMax(have, axis=0, keepdims=0)
        score = inner.Gather(have, best)
        shared = frame.overlap(inner, best)
        drop = inner.GreaterOrEqual(shared, overlap)
        left = have
        if scale is not None:
            left = inner.Mul(have, inner.Exp(inner.Mul(inner.Mul(scale, shared), shared)))
            drop = inner.Or(drop, inner.LessOrEqual(left, least))
        chosen = inner.Equal(np.arange(size[0], dtype=np.int64), best)
        left = inner.Where(inner.Or(drop, chosen), out, left)
        more = inner.Greater(inner.reduce("ReduceMax", left, [0], keepdims=False), least)
        outputs = (more, left, best, score)
        for value, dtype, shape in (
            (more, DType.BOOL, ()), (left, DType.FLOAT32, size), (best, DType.INT64, ()),
            (score, DType.FLOAT32, ()),
        ):  # fmt: skip
            g.typed(value, dtype, shape)
        body = Body("suppress", (number, go, have), alive(inner.nodes, outputs), outputs, ())
        start = g.Greater(g.reduce("ReduceMax", first, [0], keepdims=False), least)
        most = g.scalar(self._most, DType.INT64)
        _, indices, values = g.many("Loop", 3, most, start, first, body=body)
        return indices, values
