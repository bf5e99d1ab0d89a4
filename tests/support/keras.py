"""Recurrent layers as Keras and TFLite's converter write them: as loops."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.support import Build
from tests.support.control import loop, number, op
from tests.support.flex import Type, flex_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support import Subgraph, Tensor

TIMES, BATCH, FEATURES, UNITS = 7, 3, 5, 11


def add_list_operator(
    m: Subgraph,
    name: str,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor] | None = None,
    **attributes: Any,
) -> list[Tensor]:
    """Return the outputs of an operator on TensorFlow's lists, by default a list."""
    made = outputs or [m.tensor([], dtype="variant")]
    options = flex_options(f"TensorList{name}", element_dtype=Type(1), **attributes)
    return m.custom(f"FlexTensorList{name}", inputs, made, options)


def set_between_slices(
    m: Subgraph, items: Tensor, item: Tensor, count: Tensor, following: Tensor
) -> Tensor:
    """Return the list with an item, between the slices of the items before and after it."""
    (rank,) = m.op("RANK", [item], [[]], dtype="int32")
    dims, head, tail = (
        m.op("EXPAND_DIMS", [each, number(m, 0)], [[1]], dtype="int32")[0]
        for each in (rank, count, following)
    )

    def entries(first: Tensor, rest: int) -> Tensor:
        (others,) = m.op("FILL", [dims, number(m, rest)], [[2]], dtype="int32")
        return m.op("CONCATENATION", [first, others], [[3]], dtype="int32")[0]

    bounds = [
        (entries(m.constant([0]), 0), entries(head, -1)),
        (entries(tail, 0), entries(m.constant([-1]), -1)),
    ]
    before, after = (m.op("SLICE", [items, *pair], [[None, *item.shape]])[0] for pair in bounds)
    (row,) = m.op("EXPAND_DIMS", [item, number(m, 0)], [[1, *item.shape]])
    return m.op("CONCATENATION", [before, row, after], [items.shape])[0]


@dataclass(frozen=True)
class Keras:
    """The form of a recurrent Keras layer in the file; `cell` is LSTM, GRU, RNN or GRU-before.

    The fields from `first` on describe deviations: only with their defaults is it a Keras layer.
    """

    cell: str = "LSTM"
    matmul: bool = False  # BATCH_MATMUL in place of FULLY_CONNECTED
    added_biases: bool = False  # biases are added by separate ADD operators
    last: bool = False  # the list has room only for the last item
    listed: bool = False  # items are stored in TensorFlow's lists
    ranked: bool = False  # items are stored between slices of computed axes, as TensorFlow 2.2 does
    turned: bool = False  # the sequence is an input with the batch as its first axis
    batch: int | None = BATCH
    times: int = TIMES
    dynamic: bool = False  # the length of the sequence is the number of rounds
    mask: str = ""  # what a masked item stores: "zero", "state", or what a variable "kept"
    tiled: bool = False  # the mask is repeated for all units
    int8: bool = False  # weights are integers
    rows: bool = False  # each row of the weights has a scale
    gates: str = "LOGISTIC"  # their function; "hard": a x + b limited to 0 and 1
    squash: str = "TANH"  # the function of the candidate; "" for none
    ending: str = "TANH"  # what the output gate of an LSTM multiplies
    fused: bool = False  # the sum of an LSTM's c applies RELU, which nothing else reads
    joined: bool = False  # x and h are joined, and have one matrix
    dropout: bool = False  # x is multiplied by 1
    peepholes: bool = False  # i and f of an LSTM read c, o reads the next c
    projected: bool = False  # h of an LSTM is multiplied by a matrix
    layers: int = 1  # in the same loop

    first: int = 0
    step: int = 1
    bounded: bool = False  # the index into the sequence is at most 1
    more: int = 0  # items of the sequence in excess of the rounds
    one: float = 1
    extra: bool = False  # an additional, unrelated variable
    activation: str = "NONE"
    limit: str = ""  # "batch" or "sum": the limit of the count, instead of the sequence length
    axis: int = 0
    other: bool = False  # the update gate multiplies the new value
    stale: bool = False  # the next state is computed from the previous state alone
    zeroed: bool = False  # the first states are 0
    start: float = 0  # the first value of what a variable kept
    unmasked: int = 0  # the number of last variables that masked items change, too
    returned: bool = False  # c of a masked LSTM is an output

    def model(self) -> Build:
        """Return (states, sequence) -> (counts, items, states)."""
        m = Build()
        states = [
            m.constant(np.zeros((self.batch or 1, units), np.float32))
            if self.zeroed
            else m.input([self.batch, units], name=f"state {i}")
            for i, units in enumerate([self.units, *[UNITS] * (self.states - 1)])
        ]
        times = None if self.dynamic else self.times + self.more
        shape, batch_first = [times, self.batch, FEATURES], [self.batch, times, FEATURES]
        sequence = m.input(batch_first if self.axis or self.turned else shape, name="x")
        if self.turned:
            (sequence,) = m.op("TRANSPOSE", [sequence, m.constant([1, 0, 2])], [m.tensor(shape)])
        counts = [number(m, self.first), number(m, 0)]
        most = self.round_count(m, sequence)
        variables = [*counts, self.items(m, sequence, most), *states, sequence, most]
        given = variables if self.dynamic else variables[:-1]
        if self.mask:
            given.append(m.input([self.times, self.batch, 1], name="mask", dtype="bool"))
            shape = [self.batch or 1, UNITS]
            given.append(m.constant(np.full(shape, self.start, np.float32)))
        ends = loop(m, given, self.body, self.condition)
        kept = ends[-1:] if self.mask == "kept" else []
        ends = ends[: 3 + self.states]
        if self.listed:
            inputs = [ends[2], m.constant([-1, UNITS])]
            shape = [self.length, self.batch, UNITS]
            (ends[2],) = add_list_operator(m, "Stack", inputs, [m.tensor(shape)])
        m.output(*(ends if self.returned or not self.mask else ends[:4]), *kept)
        return m

    @property
    def length(self) -> int:
        """The number of stored items."""
        return 1 if self.last else self.times

    def round_count(self, m: Build, sequence: Tensor) -> Tensor:
        """Return the number of rounds."""
        if not self.dynamic:
            return number(m, self.times)
        most = self.size_of(m, sequence, int(self.limit == "batch"))
        return op(m, "ADD", most, number(m, 0)) if self.limit == "sum" else most

    @staticmethod
    def size_of(m: Build, x: Tensor, axis: int) -> Tensor:
        """Return the size of an axis of three."""
        (shape,) = m.op("SHAPE", [x], [[3]], dtype="int32", out_type="int32")
        cut = [m.constant([axis]), m.constant([axis + 1]), m.constant([1])]
        return m.op("STRIDED_SLICE", [shape, *cut], [[]], shrink_axis_mask=1)[0]

    def items(self, m: Build, sequence: Tensor, most: Tensor) -> Tensor:
        """Return the initial list of items."""
        if self.dynamic and not self.last:
            (first,) = m.op("RESHAPE", [most, m.constant([1])], [[1]])
            inputs = [first, m.constant([self.batch or 1, self.units])]
            if self.batch is None:
                batch = self.size_of(m, sequence, 1)
                (batch,) = m.op("RESHAPE", [batch, m.constant([1])], [[1]])
                inputs = [first, batch, m.constant([self.units])]
            (dims,) = m.op("CONCATENATION", inputs, [[3]], axis=0)
            made = m.tensor([None, self.batch, self.units])
            return m.op("FILL", [dims, m.constant(np.array(0, np.float32))], [made])[0]
        if self.listed:
            return add_list_operator(
                m, "Reserve", [m.constant([-1, UNITS]), number(m, self.length)]
            )[0]
        return m.constant(np.zeros((self.length, self.batch or 1, self.units), np.float32))

    @property
    def units(self) -> int:
        """The size of h."""
        return 3 if self.projected else UNITS

    @property
    def states(self) -> int:
        """The number of states."""
        return (2 if self.cell == "LSTM" else 1) * self.layers + self.extra

    def condition(self, m: Subgraph, xs: Sequence[Tensor]) -> Tensor:
        """Return the condition: Keras has two counters."""
        most = xs[-1] if self.dynamic else number(m, self.times)
        both = [m.op("LESS", [x, most], [[]], dtype="bool")[0] for x in xs[:2]]
        return m.op("LOGICAL_AND", both, [[]])[0]

    def body(self, m: Subgraph, xs: Sequence[Tensor]) -> list[Tensor]:
        """Return the next values."""
        counts, items, (h, *others) = xs[:2], xs[2], xs[3 : 3 + self.states]
        sequence, *most = xs[3 + self.states :]
        masked = self.mask_of(m, most[-2], counts[0]) if self.mask else None
        shape = [self.batch, FEATURES]
        (x,) = m.op("GATHER", [sequence, counts[0]], [shape], axis=self.axis)
        if self.dropout:
            (sizes,) = m.op("SHAPE", [x], [[2]], dtype="int32", out_type="int32")
            (ones,) = m.op("FILL", [sizes, m.constant(np.array(1, np.float32))], [shape])
            x = op(m, "MUL", x, ones)
        made, *rest = Cell(self, m).step(x, h, others)
        stored, result = made, made
        if self.layers > 1:
            half = self.states // 2
            top = Cell(self, m, 1).step(made, others[half - 1], others[half:])
            stored, rest = top[0], [*rest[: half - 1], *top]
        if masked is not None:
            zero = m.constant(np.array(0, np.float32))
            before = {"zero": zero, "state": h, "kept": most[-1]}[self.mask]
            stored = self.choose(m, masked, made, before)
            old = [h, *others][: self.states - self.unmasked]
            pairs = [
                self.choose(m, masked, *each) for each in zip([made, *rest], old, strict=False)
            ]
            result, *rest = [*pairs, *[made, *rest][len(pairs) :]]
            most[-1] = stored if self.mask == "kept" else most[-1]
        steps = [number(m, self.step), number(m, 1)]
        bounds = ["RELU_N1_TO_1" if self.bounded else "NONE", "NONE"]
        following = [
            op(m, "ADD", *pair, fused_activation_function=bound)
            for *pair, bound in zip(counts, steps, bounds, strict=True)
        ]
        if self.listed:
            place = number(m, 0) if self.last else counts[0]
            (item,) = add_list_operator(m, "SetItem", [items, place, stored])
        elif self.ranked:
            item = set_between_slices(m, items, stored, counts[0], following[0])
        else:
            sizes = m.constant([1, self.batch or -1, self.units])
            (item,) = m.op("RESHAPE", [stored, sizes], [[1, *made.shape]])
        if not self.last and not self.listed and not self.ranked:
            (first,) = m.op("RESHAPE", [counts[0], m.constant([1])], [[1]])
            (place,) = m.op("CONCATENATION", [first, m.constant([0, 0])], [[3]], axis=0)
            (item,) = m.op("DYNAMIC_UPDATE_SLICE", [items, item, place], [items.shape])
        return [*following, item, op(m, "ABS", h) if self.stale else result, *rest, sequence, *most]

    def mask_of(self, m: Subgraph, mask: Tensor, count: Tensor) -> Tensor:
        """Return the item of the mask."""
        (item,) = m.op("GATHER", [mask, count], [[self.batch, 1]], dtype="bool", axis=0)
        if not self.tiled:
            return item
        shape = [self.batch, UNITS]
        return m.op("TILE", [item, m.constant([1, UNITS])], [shape], dtype="bool")[0]

    def choose(self, m: Subgraph, mask: Tensor, new: Tensor, old: Tensor) -> Tensor:
        """Return the new value where the mask is set."""
        code = "SELECT" if self.tiled else "SELECT_V2"
        if self.tiled and not old.shape:
            old = m.constant(np.zeros(new.shape, np.float32))
        return m.op(code, [mask, new, old], [new.shape])[0]


class Cell:
    """The operators of a cell with random parameters."""

    def __init__(self, form: Keras, m: Subgraph, seed: int = 0) -> None:
        self.form, self.m = form, m
        self.generator = np.random.default_rng(seed)

    def step(self, x: Tensor, h: Tensor, others: Sequence[Tensor]) -> list[Tensor]:
        """Return the next states."""
        if self.form.cell == "LSTM":
            made = self.lstm(x, h, others[0])
        elif self.form.cell == "RNN":
            made = [self.apply(self.form.squash, self.both(x, h, 1))]
        else:
            made = [self.gru(x, h)]
        return [*made, *(self.add(made[0], t) for t in others[-1:] if self.form.extra)]

    def lstm(self, x: Tensor, h: Tensor, c: Tensor) -> list[Tensor]:
        """Return h and c."""
        sums = self.both(x, h, 4)
        if self.form.added_biases:
            sums = self.op("ADD", sums, self.constant(4 * UNITS))
        i, f, g, o = self.split(sums, 4)
        if self.form.peepholes:
            i, f = (self.add(gate, self.op("MUL", c, self.constant(UNITS))) for gate in (i, f))
        i, f = (self.apply(self.form.gates, gate) for gate in (i, f))
        kept, new = self.op("MUL", f, c), self.op("MUL", i, self.apply(self.form.squash, g))
        activation = "RELU" if self.form.fused else self.form.activation
        c = self.op("ADD", kept, new, fused_activation_function=activation)
        if self.form.peepholes:
            o = self.add(o, self.op("MUL", c, self.constant(UNITS)))
        o = self.apply(self.form.gates, o)
        h = self.op("MUL", o, self.apply(self.form.ending, c))
        if self.form.projected:
            operands = [h, self.constant(self.form.units, UNITS), None]
            (h,) = self.m.op("FULLY_CONNECTED", operands, [[h.shape[0], self.form.units]])
        return [h, c]

    def gru(self, x: Tensor, h: Tensor) -> Tensor:
        """Return h."""
        before = self.form.cell == "GRU-before"
        if self.form.joined:  # one matrix of both gates, whose function is applied before the split
            r, z = self.split(self.apply(self.form.gates, self.both(x, h, 2)), 2)
            g = self.apply(self.form.squash, self.both(x, self.op("MUL", r, h), 1))
            return self.update(h, z, g)
        xz, xr, xg = self.split(self.sums(x, 3), 3)
        hz, hr, *hg = self.split(self.sums(h, 2 if before else 3), 2 if before else 3)
        z, r = (self.apply(self.form.gates, self.add(*pair)) for pair in ((xz, hz), (xr, hr)))
        inner = self.sums(self.op("MUL", r, h), 1, bias=False) if before else self.op("MUL", r, *hg)
        return self.update(h, z, self.apply(self.form.squash, self.add(xg, inner)))

    def update(self, h: Tensor, z: Tensor, g: Tensor) -> Tensor:
        """Return the next h of a GRU, for its update gate and candidate."""
        one = self.m.constant(np.array(self.form.one, np.float32))
        (rest,) = self.m.op("SUB", [one, z], [z.shape])
        old, new = (rest, z) if self.form.other else (z, rest)
        return self.add(self.op("MUL", old, h), self.op("MUL", new, g))

    def op(self, code: str, *inputs: Tensor, **options: Any) -> Tensor:
        return op(self.m, code, *inputs, **options)

    def apply(self, code: str, x: Tensor) -> Tensor:
        """Return a function of x."""
        if code == "hard":
            a, b, one, zero = (self.m.constant(np.array(n, np.float32)) for n in (0.2, 0.5, 1, 0))
            line = self.op("ADD", self.op("MUL", x, a), b)
            return self.op("MAXIMUM", self.op("MINIMUM", line, one), zero)
        return self.op(code, x) if code else x

    def add(self, *terms: Tensor) -> Tensor:
        return self.op("ADD", *terms, fused_activation_function=self.form.activation)

    def constant(self, *shape: int) -> Tensor:
        return self.m.constant(self.generator.uniform(-0.5, 0.5, shape).astype(np.float32))

    def both(self, x: Tensor, h: Tensor, gates: int) -> Tensor:
        """Return the sums of the products of x and h."""
        if self.form.joined:
            shape = [x.shape[0], x.shape[1] + h.shape[1]]
            return self.sums(self.m.op("CONCATENATION", [x, h], [shape], axis=1)[0], gates)
        return self.add(self.sums(x, gates), self.sums(h, gates, bias=self.form.cell == "RNN"))

    def sums(self, x: Tensor, gates: int, *, bias: bool = True) -> Tensor:
        """Return the products of x and the weights of all gates."""
        columns, shape = gates * UNITS, [x.shape[0], gates * UNITS]
        if self.form.matmul:
            weights = self.constant(x.shape[1], columns)
            (made,) = self.m.op("BATCH_MATMUL", [x, weights], [shape])
            return self.op("ADD", made, self.constant(columns)) if bias else made
        weights = self.constant(columns, x.shape[1])
        if self.form.int8:
            integers = self.generator.integers(-127, 127, (columns, x.shape[1]), np.int8)
            scale = 0.005 * self.generator.uniform(0.8, 1.2, columns) if self.form.rows else 0.005
            weights = self.m.constant(integers, scale=scale)
        return self.m.op(
            "FULLY_CONNECTED", [x, weights, self.constant(columns) if bias else None], [shape]
        )[0]

    def split(self, x: Tensor, count: int) -> list[Tensor]:
        """Return the gates, by SPLIT, or by STRIDED_SLICE if there are two gates."""
        shapes = [[x.shape[0], UNITS]] * count
        if count != 2:
            return self.m.op("SPLIT", [number(self.m, -1), x], shapes, num_splits=count)
        return [
            self.m.op(
                "STRIDED_SLICE",
                [x, *(self.m.constant(n) for n in ([0, i * UNITS], [0, (i + 1) * UNITS], [1, 1]))],
                [shape],
                begin_mask=1,
                end_mask=1,
            )[0]
            for i, shape in enumerate(shapes)
        ]
