"""moe: the experts of a language model that a router has chosen for each token."""

from collections.abc import Callable, Iterator, Sequence
from math import prod

import numpy as np

from tflite2onnx.builder.builder import Body
from tflite2onnx.op.base import Builder, OperatorError, Value, View
from tflite2onnx.op.common.checks import expect_input_count, expect_type
from tflite2onnx.op.recurrent.base import Shaped, scan
from tflite2onnx.op.traits import DynamicShape
from tflite2onnx.quantization.declarations import Integers
from tflite2onnx.tensor import Array, DType

# The types of weights by the option `weight_type`; an int4 tensor may be stored as pairs of int8.
_WEIGHTS = {"fp32": (DType.FLOAT32,), "int8": (DType.INT8,), "int4": (DType.INT4, DType.INT8)}
_APPROXIMATE = {"gelu": False, "gelu_tanh": True}
_ROUTING = 3  # inputs before the weights: data, shares and numbers of the experts


class Experts(DynamicShape):
    """moe: for each token the weighted sum of the outputs of some experts, gated dense layers.

    An expert computes down(gelu(gate(x)) * up(x)) times its scale, expert by expert, as the kernel
    does; see `scan_experts`.
    """

    codes = ("moe",)
    operands = "float32 [...], float32, int32, ... -> float32 [...]"
    quantization = Integers(in_file_types=True)

    def supports_dynamic_axis(self, operand: int, axis: int) -> bool:
        tensors = {~0: self.output, 0: self.input(0), 1: self.input(1), 2: self.input(2)}
        return operand in tensors and axis < tensors[operand].rank - 1

    def check(self) -> None:
        experts, active, depth, hidden = self._sizes
        o, x = self.options, self.input(0)
        if o.weight_type not in _WEIGHTS or o.get("activation", "gelu") not in _APPROXIMATE:
            raise OperatorError(
                f"its weight_type must be one of {[*_WEIGHTS]}, and its activation one of"
                f" {[*_APPROXIMATE]}, got {o.weight_type} and {o.get('activation')}"
            )
        if not 0 < active <= experts or min(depth, hidden) < 1 or x.shape[-1:] != (depth,):
            raise OperatorError(
                f"experts, depths and the last axis of {list(x.shape)} must fit together, got"
                f" {active} of {experts} experts, model_dim {depth} and hidden_dim {hidden}"
            )
        for tensor in (self.input(1), self.input(2)):
            if tensor.shape[-1:] != (active,) or tensor.elements * depth != x.elements * active:
                raise OperatorError(
                    f"{tensor.name} must have {active} numbers for each token, got"
                    f" {list(tensor.shape)}"
                )
        expect_input_count(self, self._places[-1] + 1)
        for index, (rows, columns) in zip(self._places, self._shapes, strict=False):
            self._check_weights(index, rows * experts, columns)
        self._expect_constant(self._places[-1], (DType.FLOAT32,), experts)

    @property
    def _sizes(self) -> tuple[int, int, int, int]:
        """The numbers of experts and of experts for each token, and two depths."""
        o = self.options
        return int(o.num_experts), int(o.num_active_experts), int(o.model_dim), int(o.hidden_dim)

    @property
    def _shapes(self) -> Sequence[tuple[int, int]]:
        """The shapes of the matrices gate, up and down of an expert."""
        _, _, depth, hidden = self._sizes
        return (hidden, depth), (hidden, depth), (depth, hidden)

    @property
    def _places(self) -> Sequence[int]:
        """The inputs that are gate, up, down, and the scales of the experts."""
        step = 1 if self.options.weight_type == "fp32" else 2
        return [_ROUTING + step * i for i in range(4)]

    def _is_packed(self, index: int) -> bool:
        """Whether an input has two numbers of 4 bits in each element."""
        return self.options.weight_type == "int4" and self.input(index).dtype is DType.INT8

    def _check_weights(self, index: int, rows: int, columns: int) -> None:
        """Raise OperatorError unless an input, and its scales, have the elements of all experts."""
        kind, share = self.options.weight_type, 1 + self._is_packed(index)
        self._expect_constant(index, _WEIGHTS[kind], rows * columns // share)
        if kind == "fp32":
            return
        groups = max(self.input(index + 1).elements // rows, 1) if kind == "int4" else 1
        if columns % groups or columns % share:
            raise OperatorError(
                f"{columns} numbers of a row must be groups of one size, got {groups} groups"
            )
        self._expect_constant(index + 1, (DType.FLOAT32,), rows * groups)

    def _expect_constant(self, index: int, types: Sequence[DType], count: int) -> None:
        """Raise OperatorError unless an input is a constant with so many elements."""
        tensor = self.input(index)
        expect_type(tensor, types)
        if tensor.data is None or tensor.elements != count:
            raise OperatorError(f"{tensor.name} must be a constant of {count} elements")

    def emit(self, g: Builder, y: View, *inputs: View) -> Value:
        experts, active, depth, _ = self._sizes
        x, shares, places, *_, last = inputs
        count = _count_rows(x.sizes[:-1])
        tokens, parts = g.reshape(x, (-1, depth)), g.reshape(shares, (-1, 1))
        # The kernel counts negative numbers from the end.
        chosen = g.Mod(g.reshape(places, (1, -1)), np.array(experts, np.int32))
        scales = last.constant.reshape(experts, 1).astype(np.float32, copy=False)
        weights = [scales, *self._read_matrices(inputs)]
        dispatches = count * active if isinstance(count, int) else "dispatches"

        def compute(g: Builder, where: Value, before: Value, weights: Sequence[Value]) -> Value:
            scale, *matrices = weights
            rows = g.Div(where, active)
            made = self._apply_expert(g, g.Gather(tokens, rows, axis=0), iter(matrices))
            made = g.Mul(made, g.Mul(g.Gather(parts, where, axis=0), scale))
            return g.scatter_nd(before, g.Unsqueeze(rows, [1]), made, "add")

        zeros = g.Expand(g.scalar(0, DType.FLOAT32), g.Shape(tokens))
        total = scan_experts(g, chosen, dispatches, weights, (zeros, (count, depth)), compute)
        return g.reshape(total, y.sizes, like=x)

    def _read_matrices(self, inputs: Sequence[View]) -> list[Array]:
        """Return gate, up and down: [experts, rows, columns].

        Matrices of integers are [experts, rows, groups, columns of a group], and after each are
        its scales, [experts, rows, groups, 1].
        """
        experts, read = self._sizes[0], []
        for index, (rows, _) in zip(self._places, self._shapes, strict=False):
            numbers, scales, groups = inputs[index].constant, [], []
            if self._is_packed(index):  # the lower bits are the element with the lower index
                numbers = np.stack([(numbers << 4) >> 4, numbers >> 4], axis=-1)
            if self.options.weight_type != "fp32":
                scales = [inputs[index + 1].constant]
                groups = [scales[0].size // (experts * rows)]
            for each in (numbers, *scales):
                shaped = each.reshape(rows, experts, *groups, -1)
                read.append(np.ascontiguousarray(shaped.swapaxes(0, 1)))
        return read

    def _apply_expert(self, g: Builder, tokens: Value, weights: Iterator[Value]) -> Value:
        gate, up, down = (self._read_matrix(g, weights, columns) for _, columns in self._shapes)
        approximate = _APPROXIMATE[self.options.get("activation", "gelu")]
        gated = g.gelu(g.Gemm(tokens, gate, transB=1), DType.FLOAT32, approximate=approximate)
        return g.Gemm(g.Mul(gated, g.Gemm(tokens, up, transB=1)), down, transB=1)

    def _read_matrix(self, g: Builder, weights: Iterator[Value], columns: int) -> Value:
        numbers = next(weights)
        if self.options.weight_type == "fp32":
            return numbers
        return g.reshape(g.Mul(g.cast(numbers, DType.FLOAT32), next(weights)), (-1, columns))


def scan_experts(
    g: Builder,
    chosen: Value,
    dispatches: int | str,
    weights: Sequence[Array],
    state: Shaped,
    compute: Callable[[Builder, Value, Value, Sequence[Value]], Value],
) -> Value:
    """Return a state after all experts; `chosen`, [1, dispatches], are their numbers, int32.

    A Scan computes expert by expert, because it reads a row of each of the weights without a copy.
    `compute` gets the places of an expert's dispatches, the state and the rows. An If leaves out
    experts without dispatches.
    """
    matches = g.Equal(chosen, np.arange(len(weights[0]), dtype=np.int32)[:, None])
    used = g.reduce("ReduceMax", g.cast(matches, DType.INT32), [1], keepdims=False)
    xs: list[Shaped] = [(matches, (dispatches,)), (g.cast(used, DType.BOOL), ())]
    xs += [(g.constant(each), each.shape[1:]) for each in weights]
    types = [DType.BOOL, DType.BOOL, *(DType[each.dtype.name.upper()] for each in weights)]

    def step(g: Builder, now: tuple[Value, ...], states: tuple[Value, ...]) -> list[Shaped]:
        matches, used, *rows = now
        work, rest = g.make_nested(), g.make_nested()
        made = compute(work, work.reshape(work.NonZero(matches), [-1]), states[0], rows)
        kept = rest.Identity(states[0])
        (total,) = g.node_outputs(
            "If",
            1,
            used,
            then_branch=Body("compute", (), tuple(work.nodes), (made,), ()),
            else_branch=Body("skip", (), tuple(rest.nodes), (kept,), ()),
        )
        return [(total, state[1])]

    (total,) = scan(g, step, xs, [state], reverse=False, types=types)
    return total


def _count_rows(sizes: Sequence[int | str]) -> int | str:
    """Return the product of sizes; of dynamic sizes it is a name."""
    others = [size for size in sizes if size != 1]
    if any(isinstance(size, str) for size in others):
        return others[0] if len(others) == 1 else "rows"
    return prod(size for size in others if isinstance(size, int))
