"""Recurrent operators to test with: parameters at random, states that begin at 0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.toolkit import Build

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.toolkit import Tensor

    Tensors = list[Tensor | None]


@dataclass(frozen=True)
class Form:
    """What a recurrent operator is like; its sizes are primes.

    `weights` are of a type: float32, or int8 or uint8, which LiteRT multiplies by float data that
    it quantizes as they come. `units` are the outputs of a cell that has a projection, `back` the
    cells of a second direction that may have others than the first. The auxiliary input of two
    directions is "added" with weights of its own, "crossed" (the second direction reads it in
    place of the first input), or not there.
    """

    weights: str = "float32"
    times: int = 5
    batch: int = 3
    features: int = 7
    cells: int = 11
    units: int = 13
    back: int = 17
    more: int = 2
    time_major: bool = False
    single: bool = False
    flat: bool = False
    peephole: bool = False
    coupled: bool = False
    projection: bool = False
    projection_bias: bool = False
    diagonal: bool = False
    normalized: bool = False
    merged: bool = False
    auxiliary: str = ""
    activation: str = "TANH"
    cell_clip: float = 0
    proj_clip: float = 0
    asymmetric: bool = False

    @property
    def lead(self) -> list[int]:
        """The axes of a sequence but the last."""
        if self.single:
            return [self.batch]
        return [self.times, self.batch] if self.time_major else [self.batch, self.times]

    @property
    def made(self) -> int:
        """How many outputs an LSTM has for each element of a sequence."""
        return self.units if self.projection else self.cells

    @property
    def options(self) -> dict[str, Any]:
        """The options that all recurrent operators have."""
        major = {} if self.single else {"time_major": self.time_major}
        return {
            "fused_activation_function": self.activation,
            "asymmetric_quantize_inputs": self.asymmetric,
            **major,
        }

    @property
    def clips(self) -> dict[str, Any]:
        """The options of an LSTM alone."""
        return {"cell_clip": self.cell_clip, "proj_clip": self.proj_clip}


class Model(Build):
    """A model with constants at random, its weights of one type."""

    def __init__(self, dtype: str = "float32") -> None:
        super().__init__()
        self.dtype = dtype
        self.generator = np.random.default_rng(0)

    def weights(self, *shape: int) -> Tensor:
        """Constant weights."""
        if self.dtype == "float32":
            return self.vector(*shape)
        integers = self.generator.integers(-127, 127, shape, np.int8, endpoint=True)
        scale = self.generator.uniform(0.8, 1.2) / 256
        return self.constant(integers.view(self.dtype), dtype=self.dtype, scale=scale)

    def vector(self, *shape: int) -> Tensor:
        """Constant real numbers."""
        return self.constant(self.generator.uniform(-0.5, 0.5, shape).astype(np.float32))

    def state(self, *shape: int) -> Tensor:
        """A state of real numbers."""
        return self.tensor(shape, variable=True)

    def gates(self, form: Form, make: Callable[[], Tensor]) -> Tensors:
        """A tensor for each gate, for the input gate only if it is not coupled."""
        return [None if form.coupled and not i else make() for i in range(4)]

    def cell(self, form: Form) -> Tensors:
        """The parameters of an LSTM in one direction, in the sequence of its inputs."""
        n, made = form.cells, form.made
        recurrent = (lambda: self.vector(n)) if form.diagonal else (lambda: self.weights(n, made))
        looking: Tensors = [None] * 3
        if form.peephole:
            looking = [None if form.coupled and not i else self.weights(n) for i in range(3)]
        return [
            *self.gates(form, lambda: self.weights(n, form.features)),
            *self.gates(form, recurrent),
            *looking,
            *self.gates(form, lambda: self.vector(n)),
            self.weights(made, n) if form.projection else None,
            self.vector(made) if form.projection_bias else None,
        ]


def lstm(form: Form) -> bytes:
    """UNIDIRECTIONAL_SEQUENCE_LSTM, or LSTM if the form has a single step."""
    m = Model(form.weights)
    norms: Tensors = [None] * 4
    x = m.input([*form.lead, form.features])
    cell = m.cell(form)
    if form.normalized:
        norms = m.gates(form, lambda: m.vector(form.cells))
    n = form.batch
    states = [m.state(n * k) if form.flat else m.state(n, k) for k in (form.made, form.cells)]
    code = "LSTM" if form.single else "UNIDIRECTIONAL_SEQUENCE_LSTM"
    operands = [x, *cell, *states, *norms]
    m.output(*m.op(code, operands, [[*form.lead, form.made]], **form.options, **form.clips))
    return m.bytes()


def _outputs(form: Form, sizes: Sequence[int]) -> list[list[int]]:
    return [[*form.lead, n] for n in ([sum(sizes)] if form.merged else sizes)]


def bidirectional_lstm(form: Form) -> bytes:
    """BIDIRECTIONAL_SEQUENCE_LSTM; both directions have as many cells."""
    m = Model(form.weights)
    x = m.input([*form.lead, form.features])
    more = {"added": form.more, "crossed": form.features, "": 0}[form.auxiliary]
    extra = m.input([*form.lead, more]) if more else None
    cells = [*m.cell(form), *m.cell(form)]
    states = [m.state(form.batch, n) for n in (form.made, form.cells) * 2]
    added: Tensors = [None] * 8
    if form.auxiliary == "added":
        added = [t for _ in "01" for t in m.gates(form, lambda: m.weights(form.cells, more))]
    m.output(*m.op(
        "BIDIRECTIONAL_SEQUENCE_LSTM", [x, *cells, *states, extra, *added],
        _outputs(form, (form.made, form.made)), merge_outputs=form.merged,
        **form.options, **form.clips,
    ))  # fmt: skip
    return m.bytes()


def rnn(form: Form) -> bytes:
    """UNIDIRECTIONAL_SEQUENCE_RNN, or RNN if the form has a single step."""
    m, n = Model(form.weights), form.cells
    x = m.input([*form.lead, form.features])
    operands = [x, m.weights(n, form.features), m.weights(n, n), m.vector(n)]
    code = "RNN" if form.single else "UNIDIRECTIONAL_SEQUENCE_RNN"
    operands.append(m.state(form.batch, n))
    m.output(*m.op(code, operands, [[*form.lead, n]], **form.options))
    return m.bytes()


def bidirectional_rnn(form: Form) -> bytes:
    """BIDIRECTIONAL_SEQUENCE_RNN."""
    m, sizes = Model(form.weights), (form.cells, form.back)
    operands: Tensors = [m.input([*form.lead, form.features])]
    more = {"added": form.more, "crossed": form.features, "": 0}[form.auxiliary]
    extra = m.input([*form.lead, more]) if more else None
    for n in sizes:
        operands += [m.weights(n, form.features), m.weights(n, n), m.vector(n)]
        operands.append(m.state(form.batch, n))
    added = [m.weights(n, more) if form.auxiliary == "added" else None for n in sizes]
    m.output(*m.op(
        "BIDIRECTIONAL_SEQUENCE_RNN", [*operands, extra, *added], _outputs(form, sizes),
        merge_outputs=form.merged, **form.options,
    ))  # fmt: skip
    return m.bytes()


def svdf(form: Form, *, rank: int = 2, bias: bool = True) -> bytes:
    """SVDF: its cells are units, each of so many filters."""
    m, filters = Model(form.weights), form.cells * rank
    operands = [
        m.input([form.batch, form.features]),
        m.weights(filters, form.features),
        m.weights(filters, form.times),
        m.vector(form.cells) if bias else None,
        m.state(form.batch, filters * form.times),
    ]
    m.output(*m.op(
        "SVDF", operands, [[form.batch, form.cells]], rank=rank,
        fused_activation_function=form.activation, asymmetric_quantize_inputs=form.asymmetric,
    ))  # fmt: skip
    return m.bytes()


def basic_lstm() -> bytes:
    """LSTM of the kernel BASIC; the model's outputs are those of the operator."""
    m = Model()
    x, h = m.input([3, 7]), m.state(3, 11)
    operands = [x, h, m.weights(44, 18), m.vector(44), m.state(3, 11)]
    m.output(*m.op(
        "LSTM", operands, [[3, 11], [3, 11], [3, 18], [3, 44]], kernel_type="BASIC",
        fused_activation_function="TANH",
    ))  # fmt: skip
    return m.bytes()
