"""An LSTM whose cell is clipped after each step, by ONNX's LSTM, which does not clip the cell.

A bound of 10, as in files of Keras, changes only the next step, because tanh is 1 above 9.02. A
step is LSTM of one time, then Clip.

With tanh a cell grows by at most 1 in each step. One LSTM computes several times, a chunk, if no
cell before the chunk is larger than the bound minus the number of times; else the chunk is computed
step by step. The test and the If of a chunk take about 4 microseconds. 100 times of 64 units take
0.95 of the time of LiteRT if no cell exceeds half of the bound, and 2.1 if in each chunk one does
(one thread of an AMD EPYC, family 25). A single test before all chunks, and all steps again if it
fails, took 0.79 and 2.7.
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
    times = length if isinstance(length, int) else 1
    n, state = cell.cells, (1, batch, cell.cells)
    count = _find_chunk(times, cell.limit)
    x, parameters = cell.stack_parameters(g, x, auxiliary)
    first = cell.gates["o"]
    features = sum(t.shape[-1] for t in (first.weights, first.auxiliary) if t)

    def run_chunk(g: Builder, x: Value, before: tuple[Value, ...]) -> tuple[Value, ...]:
        return cell.run_onnx(g, x, before, parameters, reverse=reverse)

    def run_steps(g: Builder, x: Value, before: tuple[Value, ...]) -> tuple[Value, ...]:
        """Compute the times of a chunk one by one."""
        ones = [1] * count  # opset 18 splits only by sizes or their number
        rows = g.node_outputs("Split", count, x, ones, axis=0) if count > 1 else (x,)
        sequence: dict[Value, Value] = {}
        for row in reversed(rows) if reverse else rows:
            sequence[row], h, c = run_chunk(g, row, before)
            before = h, clip_to_limits(g, c, cell.cell_limits)
        made = [sequence[row] for row in rows]
        return g.Concat(*made, axis=0) if count > 1 else made[0], *before

    def emit_chunk(g: Builder, now: tuple[Value, ...], before: tuple[Value, ...]) -> list[Shaped]:
        (x,) = now
        if count == 1:
            y, h, c = run_steps(g, x, before)
        else:
            largest = g.ReduceMax(g.Abs(before[1]), keepdims=0)
            fits = g.Less(largest, g.scalar(cell.limit - count, DType.FLOAT32))
            then, other = g.make_nested(), g.make_nested()
            chunk, steps = run_chunk(then, x, before), run_steps(other, x, before)
            y, h, c = g.node_outputs(
                "If",
                len(chunk),
                fits,
                then_branch=Body("chunk", (), (*then.nodes,), chunk, ()),
                else_branch=Body("steps", (), (*other.nodes,), steps, ()),
            )
        return [(h, state), (c, state), (y, (count, *state))]

    chunks = g.Unsqueeze(x, [1])
    if count > 1:
        chunks = g.Reshape(x, [times // count, count, -1, features])
    xs = [(chunks, (count, batch, features))]
    h, c, y = scan(g, emit_chunk, xs, [(s, state) for s in states], reverse=reverse)
    y = g.Squeeze(y, [1, 2]) if count == 1 else g.Reshape(y, [times, -1, n])
    return y, h, c


def _find_chunk(times: int, limit: float) -> int:
    """Return the time steps of a chunk: a divisor of all steps, at most half of the limit."""
    most = int(min(limit / 2, _LONGEST))
    return max(n for n in range(1, most + 1) if times % n == 0)
