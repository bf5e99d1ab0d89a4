"""An LSTM whose cell is clipped after each step, by ONNX's LSTM, which does not clip the cell.

A bound of 10, as in files of Keras, changes only the next step, because tanh is 1 above 9.02. A
step is LSTM of one time, then Clip.

With tanh a cell grows by at most 1 in each step. One LSTM computes several times, a chunk, if no
cell before the chunk is larger than the bound minus the number of times; else the chunk is computed
step by step. The test and the If of a chunk take about 4 microseconds. 100 times of 64 units take
0.95 of the time of LiteRT if no cell exceeds half of the bound, and 2.1 if in each chunk one does
(one thread of an AMD EPYC, family 25). A single test before all chunks, and all steps again if it
fails, took 0.79 and 2.7. A sequence shorter than the bound has such a test, because its cells
mostly begin at 0: 7 times of 32 units took 4.1, and take 1.7.

Longer chunks need a bound of the cells from the gates: LSTM of 50 times, the gates i, f and g of
these times by one product, and |i * g| summed with the products of f between. That took 1.02 and
2.5 in place of 0.95 and 2.1: the bound takes as long as the chunks that it saves.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from tflite2onnx.builder.builder import Body, Builder, Operand, Value
from tflite2onnx.op.recurrent.base import Shaped, clip_to_limits, scan
from tflite2onnx.op.recurrent.lstm_cell import Cell, Parameters
from tflite2onnx.tensor import DType, Sizes

# A function that computes some times: from the rows of x [times, batch, features], the states
# before them and their number to rows [times, 1, batch, cells], and the states after them.
_Run: TypeAlias = Callable[[Builder, Operand, Sequence[Value], int], tuple[Value, ...]]

_LONGEST = 25  # the largest number of time steps of a chunk; longer chunks save little


def run_clipped_lstm(
    cell: Cell,
    g: Builder,
    x: Operand,
    auxiliary: Operand,
    states: Sequence[Value],
    sizes: Sizes,
    *,
    reverse: bool,
) -> tuple[Value, ...]:
    """Return the sequence [times, batch, cells], and the last states [1, batch, cells].

    x is [times, batch, features]; `sizes` are the sizes of the returned sequence.
    """
    times, batch, _ = sizes
    x, parameters = cell.stack_parameters(g, x, auxiliary)
    layer = _Layer(cell, parameters, batch, reverse=reverse)
    if not isinstance(times, int):
        y, *after = layer.run_chunks(g, x, states, 1, chunk=1)
    elif times < cell.limit:
        y, *after = layer.run_chunk(g, x, states, times)
    else:
        chunk = -(-times // -(-times // layer.most))  # as few chunks as possible, of equal lengths
        rest = times % chunk
        counts = (times - rest, rest) if rest else (times,)
        runs = partial(layer.run_chunks, chunk=chunk), layer.run_chunk
        y, *after = layer.run_parts(g, x, states, counts, runs)
    return g.Squeeze(y, [1]), *after


@dataclass(frozen=True)
class _Layer:
    """What computes some times of a layer; its methods are `_Run`."""

    cell: Cell
    parameters: Parameters
    batch: int | str
    reverse: bool

    @property
    def most(self) -> int:
        """The largest number of times of a chunk that is one of several."""
        return int(min(self.cell.limit / 2, _LONGEST))

    def run_lstm(
        self, g: Builder, x: Operand, before: Sequence[Value], _: int
    ) -> tuple[Value, ...]:
        """Compute times whose cells are not clipped."""
        return self.cell.run_onnx(g, x, before, self.parameters, reverse=self.reverse)

    def run_step(
        self, g: Builder, x: Operand, before: Sequence[Value], times: int
    ) -> tuple[Value, ...]:
        """Compute a single time."""
        y, h, c = self.run_lstm(g, x, before, times)
        return y, h, clip_to_limits(g, c, self.cell.cell_limits)

    def run_chunk(
        self, g: Builder, x: Operand, before: Sequence[Value], times: int
    ) -> tuple[Value, ...]:
        """Compute fewer times than the limit by one LSTM if no cell can reach the limit."""
        if times == 1:
            return self.run_step(g, x, before, times)
        largest = g.ReduceMax(g.Abs(before[1]), keepdims=0)
        fits = g.Less(largest, g.scalar(self.cell.limit - times, DType.FLOAT32))
        counts: tuple[int, ...] = (1,) * times
        run = self.run_step
        if times > self.most:
            counts, run = (self.most, times - self.most), self.run_chunk
        then, other = g.make_nested(), g.make_nested()
        chunk = self.run_lstm(then, x, before, times)
        steps = self.run_parts(other, x, before, counts, [run] * len(counts))
        return g.node_outputs(
            "If",
            len(chunk),
            fits,
            then_branch=Body("chunk", (), (*then.nodes,), chunk, ()),
            else_branch=Body("steps", (), (*other.nodes,), steps, ()),
        )

    def run_parts(
        self,
        g: Builder,
        x: Operand,
        before: Sequence[Value],
        counts: Sequence[int],
        runs: Sequence[_Run],
    ) -> tuple[Value, ...]:
        """Compute parts of a sequence, the numbers of whose times are `counts`, in turn."""
        if len(counts) == 1:
            return runs[0](g, x, before, counts[0])
        # In a reversed sequence the last times are the first part.
        turn = -1 if self.reverse else 1
        # Opset 18 splits only by sizes or their number.
        parts = g.node_outputs("Split", len(counts), x, [*counts[::turn]], axis=0)
        rows = []
        for part, count, run in zip(parts[::turn], counts, runs, strict=True):
            y, *before = run(g, part, before, count)
            rows.append(y)
        return g.Concat(*rows[::turn], axis=0), *before

    def run_chunks(
        self, g: Builder, x: Operand, before: Sequence[Value], times: int, *, chunk: int
    ) -> tuple[Value, ...]:
        """Compute chunks in a loop; with chunks of a single time, any number of times."""
        state = (1, self.batch, self.cell.cells)
        gate = self.cell.gates["o"]
        features = sum(t.shape[-1] for t in (gate.weights, gate.auxiliary) if t)

        def step(g: Builder, now: tuple[Value, ...], before: tuple[Value, ...]) -> list[Shaped]:
            y, h, c = self.run_chunk(g, now[0], before, chunk)
            return [(h, state), (c, state), (y, (chunk, *state))]

        rows = g.Unsqueeze(x, [1])
        if chunk > 1:
            rows = g.Reshape(x, [times // chunk, chunk, -1, features])
        xs = [(rows, (chunk, self.batch, features))]
        h, c, y = scan(g, step, xs, [(s, state) for s in before], reverse=self.reverse)
        y = g.Squeeze(y, [1]) if chunk == 1 else g.Reshape(y, [times, 1, -1, self.cell.cells])
        return y, h, c
