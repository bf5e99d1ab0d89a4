"""Recurrent operators to test with: parameters at random, states at 0.

Where LiteRT multiplies integer weights by float data it quantizes that first. `Sizes` are primes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tests.toolkit import Build

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.toolkit import Tensor

Array = np.ndarray[Any, np.dtype[Any]]


class Sizes(NamedTuple):
    """How long the axes are; units are the outputs of a cell that has a projection."""

    times: int = 5
    batch: int = 3
    features: int = 7
    cells: int = 11
    units: int = 13


class Parameters:
    """Makes parameters for one model, of a type for weights ("float32", "int8" or "uint8")."""

    def __init__(self, m: Build, dtype: str = "float32", seed: int = 0) -> None:
        self.m = m
        self.dtype = dtype
        self.generator = np.random.default_rng(seed)

    def weights(self, *shape: int, spread: float = 0.5) -> Tensor:
        """A constant with elements within the spread, of the type for weights."""
        if self.dtype == "float32":
            return self.vector(*shape, spread=spread)
        integers = self.generator.integers(-127, 127, shape, np.int8, endpoint=True)
        scale = spread / 127 * self.generator.uniform(0.8, 1.2)
        return self.m.constant(integers.view(self.dtype), dtype=self.dtype, scale=scale)

    def vector(self, *shape: int, spread: float = 0.5) -> Tensor:
        """A constant of real numbers within the spread."""
        data = self.generator.uniform(-spread, spread, shape)
        return self.m.constant(data.astype(np.float32))

    def state(self, *shape: int) -> Tensor:
        """A state of real numbers."""
        return self.m.tensor(shape, variable=True)


def gates(
    p: Parameters, features: int, cells: int, units: int, *,
    peephole: bool = False, coupled: bool = False, projection: bool = False,
    projection_bias: bool = False, diagonal: bool = False,
) -> list[Tensor | None]:  # fmt: skip
    """The parameters of an LSTM, in the sequence of its inputs, without layer normalization."""
    def four(make: Any) -> list[Tensor | None]:  # noqa: ANN401
        return [None if coupled and not i else make() for i in range(4)]

    recurrent = [cells] if diagonal else [cells, units]
    make = p.vector if diagonal else p.weights
    return [
        *four(lambda: p.weights(cells, features)),
        *four(lambda: make(*recurrent)),
        *([p.weights(cells) if i or not coupled else None for i in range(3)]
          if peephole else [None] * 3),
        *four(lambda: p.vector(cells)),
        p.weights(units, cells) if projection else None,
        p.vector(units) if projection_bias else None,
    ]  # fmt: skip


def lstm(
    sizes: Sizes = Sizes(), *, weights: str = "float32", normalized: bool = False,
    coupled: bool = False, projection: bool = False, time_major: bool = False,
    single: bool = False, activation: str = "TANH", flat_states: bool = False,
    options: dict[str, Any] | None = None, **forms: bool,
) -> bytes:  # fmt: skip
    """UNIDIRECTIONAL_SEQUENCE_LSTM, or LSTM if `single`."""
    m = Build()
    p = Parameters(m, weights)
    times, batch, features, cells, units = sizes
    units = units if projection else cells
    lead = [batch] if single else [times, batch] if time_major else [batch, times]
    x = m.input([*lead, features])
    state = [batch * units], [batch * cells]
    if not flat_states:
        state = [batch, units], [batch, cells]
    norms: Sequence[Tensor | None] = [None] * 4
    if normalized:
        norms = [None if coupled and not i else p.vector(cells, spread=1) for i in range(4)]
    operands = [
        x,
        *gates(p, features, cells, units, coupled=coupled, projection=projection, **forms),
        *(p.state(*shape) for shape in state),
        *norms,
    ]
    code = "LSTM" if single else "UNIDIRECTIONAL_SEQUENCE_LSTM"
    given = {} if single else {"time_major": time_major}
    m.output(*m.op(
        code, operands, [[*lead, units]], fused_activation_function=activation,
        **given, **(options or {}),
    ))  # fmt: skip
    return m.bytes()


def _outputs(lead: Sequence[int], sizes: tuple[int, int], *, merged: bool) -> list[list[int]]:
    return [[*lead, sum(sizes)]] if merged else [[*lead, size] for size in sizes]


def bidirectional_lstm(
    sizes: Sizes = Sizes(), *, weights: str = "float32", time_major: bool = False,
    merged: bool = False, auxiliary: str = "", back: int = 11, projection: bool = False,
    options: dict[str, Any] | None = None, **forms: bool,
) -> bytes:  # fmt: skip
    """BIDIRECTIONAL_SEQUENCE_LSTM: `back` cells in the second direction.

    The auxiliary input is "added" with weights of its own, "crossed" (read by the second
    direction in place of the first input), or not there.
    """
    m = Build()
    p = Parameters(m, weights)
    times, batch, features, cells, units = sizes
    lead = [times, batch] if time_major else [batch, times]
    x = m.input([*lead, features])
    more = {"added": 2, "crossed": features, "": 0}[auxiliary]
    extra = m.input([*lead, more]) if more else None
    counts = (cells, units if projection else cells), (back, 19 if projection else back)
    operands = [x]
    for count, made in counts:
        operands += gates(p, features, count, made, projection=projection, **forms)
    for count, made in counts:
        operands += [p.state(batch, made), p.state(batch, count)]
    operands.append(extra)
    for count, _ in counts:
        there = auxiliary == "added"
        operands += [
            p.weights(count, more) if there and (i or not forms.get("coupled")) else None
            for i in range(4)
        ]
    m.output(*m.op(
        "BIDIRECTIONAL_SEQUENCE_LSTM", operands,
        _outputs(lead, (counts[0][1], counts[1][1]), merged=merged),
        fused_activation_function="TANH", time_major=time_major, merge_outputs=merged,
        **(options or {}),
    ))  # fmt: skip
    return m.bytes()


def rnn(
    sizes: Sizes = Sizes(), *, weights: str = "float32", time_major: bool = False,
    single: bool = False, activation: str = "TANH", asymmetric: bool = False,
) -> bytes:  # fmt: skip
    """UNIDIRECTIONAL_SEQUENCE_RNN, or RNN if `single`."""
    m = Build()
    p = Parameters(m, weights)
    times, batch, features, cells, _ = sizes
    lead = [batch] if single else [times, batch] if time_major else [batch, times]
    operands = [
        m.input([*lead, features]), p.weights(cells, features), p.weights(cells, cells),
        p.vector(cells), p.state(batch, cells),
    ]  # fmt: skip
    code = "RNN" if single else "UNIDIRECTIONAL_SEQUENCE_RNN"
    given = {} if single else {"time_major": time_major}
    m.output(*m.op(
        code, operands, [[*lead, cells]], fused_activation_function=activation,
        asymmetric_quantize_inputs=asymmetric, **given,
    ))  # fmt: skip
    return m.bytes()


def bidirectional_rnn(
    sizes: Sizes = Sizes(), *, weights: str = "float32", time_major: bool = False,
    merged: bool = False, auxiliary: str = "", activation: str = "TANH", back: int = 17,
) -> bytes:  # fmt: skip
    """BIDIRECTIONAL_SEQUENCE_RNN; the auxiliary input is as that of `bidirectional_lstm`."""
    m = Build()
    p = Parameters(m, weights)
    times, batch, features, cells, _ = sizes
    lead = [times, batch] if time_major else [batch, times]
    # Of time-major sequences the kernel looks for auxiliary ones as if they had as many features.
    more = 0 if not auxiliary else features if time_major or auxiliary == "crossed" else 2
    operands: list[Tensor | None] = [m.input([*lead, features])]
    extra = m.input([*lead, more]) if more else None
    for count in (cells, back):
        operands += [
            p.weights(count, features), p.weights(count, count), p.vector(count),
            p.state(batch, count),
        ]  # fmt: skip
    operands.append(extra)
    operands += [p.weights(n, more) if auxiliary == "added" else None for n in (cells, back)]
    m.output(*m.op(
        "BIDIRECTIONAL_SEQUENCE_RNN", operands, _outputs(lead, (cells, back), merged=merged),
        fused_activation_function=activation, time_major=time_major, merge_outputs=merged,
    ))  # fmt: skip
    return m.bytes()


def svdf(
    *, weights: str = "float32", rank: int = 2, bias: bool = True, activation: str = "RELU",
    asymmetric: bool = False,
) -> bytes:  # fmt: skip
    """SVDF of 3 batches, 7 features, 5 units and 11 times."""
    m = Build()
    p = Parameters(m, weights)
    filters = 5 * rank
    operands = [
        m.input([3, 7]), p.weights(filters, 7), p.weights(filters, 11),
        p.vector(5) if bias else None, p.state(3, filters * 11),
    ]  # fmt: skip
    m.output(*m.op(
        "SVDF", operands, [[3, 5]], rank=rank, fused_activation_function=activation,
        asymmetric_quantize_inputs=asymmetric,
    ))  # fmt: skip
    return m.bytes()


def basic_lstm() -> bytes:
    """LSTM of the kernel BASIC; all four outputs are the model's."""
    m = Build()
    p = Parameters(m)
    operands = [
        m.input([3, 7]), p.state(3, 11), p.weights(44, 18), p.vector(44), p.state(3, 11),
    ]  # fmt: skip
    m.output(*m.op(
        "LSTM", operands, [[3, 11], [3, 11], [3, 18], [3, 44]], kernel_type="BASIC",
        fused_activation_function="TANH",
    ))  # fmt: skip
    return m.bytes()
