"""An LSTM whose cell is clipped after each step, by ONNX's LSTM, which does not clip the cell.

A bound of 10, as in files of Keras, changes only the next step, because tanh is 1 above 9.02. A
step is LSTM of one time, then Clip.

With tanh a cell grows by at most 1 in each step. One LSTM may compute several times, a chunk, if no
cell before the chunk is larger than the bound minus the number of times. The network computes in
chunks. If a cell was too large, it computes all steps again, one by one. 100 times of 64 units take
0.31 of the time of the formulas of the kernel in chunks of 5, and 0.8 one by one (one thread of an
AMD EPYC, family 26).
"""

from collections.abc import Sequence

from tflite2onnx.builder.builder import Body, Builder, Operand, Value
from tflite2onnx.op.recurrent.base import Shaped, clip_to_limits, scan
from tflite2onnx.op.recurrent.lstm_cell import Cell
from tflite2onnx.tensor import DType, Sizes

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
    length, batch, _ = sizes
    n = cell.cells
    times = length if isinstance(length, int) else 1
    x, parameters = cell.stack_parameters(g, x, auxiliary)
    first = cell.gates["o"]
    features = sum(t.shape[-1] for t in (first.weights, first.auxiliary) if t)
    state = (1, batch, n)

    def run_chunks(g: Builder, count: int) -> tuple[Value, ...]:
        """Compute in chunks of `count` times; the last result is the cells before each chunk."""

        def emit_step(
            g: Builder, now: tuple[Value, ...], before: tuple[Value, ...]
        ) -> list[Shaped]:
            y, h, c = cell.run_onnx(g, now[0], before, parameters, reverse=reverse)
            c = clip_to_limits(g, c, cell.cell_limits)
            rows = [(h, state), (c, state), (y, (count, *state))]
            return rows if count == 1 else [*rows, (g.Identity(before[1]), state)]

        chunks = g.Unsqueeze(x, g.ints([1]))
        if count > 1:
            chunks = g.Reshape(x, g.ints([times // count, count, -1, features]))
        xs = [(chunks, (count, batch, features))]
        h, c, y, *before = scan(g, emit_step, xs, [(s, state) for s in states], reverse=reverse)
        y = g.Squeeze(y, g.ints([1, 2])) if count == 1 else g.Reshape(y, g.ints([times, -1, n]))
        return y, h, c, *before

    count = _find_chunk(times, cell.limit)
    if count == 1:
        return run_chunks(g, 1)
    *outputs, before = run_chunks(g, count)
    largest = g.ReduceMax(g.Abs(before), keepdims=0)
    fits = g.Less(largest, g.scalar(cell.limit - count, DType.FLOAT32))
    then, other = g.make_nested(), g.make_nested()
    chunks = tuple(map(then.Identity, outputs))
    steps = run_chunks(other, 1)
    return g.node_outputs(
        "If",
        len(outputs),
        fits,
        then_branch=Body("chunks", (), (*then.nodes,), chunks, ()),
        else_branch=Body("steps", (), (*other.nodes,), steps, ()),
    )


def _find_chunk(times: int, limit: float) -> int:
    """Return the time steps of a chunk: a divisor of all steps, at most half of the limit."""
    most = int(min(limit / 2, _LONGEST))
    return max(n for n in range(1, most + 1) if times % n == 0)
