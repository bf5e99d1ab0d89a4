"""Models of recurrent operators with random parameters; states begin at 0 unless given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.support import Build

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.support import Tensor
    from tests.support.tensor import TensorFields

    Tensors = list[Tensor | None]


@dataclass(frozen=True)
class Form:
    """The options of a recurrent operator; its sizes are primes.

    `weights` is a type: float32 or float16, or int8 or uint8, which LiteRT multiplies by float data
    that it quantizes at run time. `units` is the number of outputs of a cell with a projection,
    `back` the number of cells of a second direction, if it differs from the first. The auxiliary
    input of two directions is "added" with its own weights, "crossed" (the second direction reads
    it in place of the first input), or absent.

    With `rescaled` the hidden values, the state and the output of an integer cell have different
    scales and zero points.

    `initial` is the source of states: "computed" from inputs in each run, "given" as inputs, "one"
    computed tensor for all states, or the name of an operator that computes them from constants. By
    default no operator computes them.
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
    dynamic: bool = False
    hidden_zero: int = 3
    rescaled: bool = False
    initial: str = ""

    @property
    def lead_axes(self) -> list[int]:
        """The axes of a sequence before the last."""
        if self.single:
            return [self.batch]
        return [self.times, self.batch] if self.time_major else [self.batch, self.times]

    @property
    def output_units(self) -> int:
        """The number of outputs of an LSTM for each step."""
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
    def clip_options(self) -> dict[str, Any]:
        """The options that only LSTM has."""
        return {"cell_clip": self.cell_clip, "proj_clip": self.proj_clip}


class Model(Build):
    """A model with random constants whose weights have one type."""

    def __init__(self, dtype: str = "float32", initial: str = "") -> None:
        super().__init__()
        self.dtype = dtype
        self.initial = initial
        self.states: list[Tensor] = []
        self.generator = np.random.default_rng(0)

    def sequence(self, form: Form) -> Tensor:
        """Return the input; its time axis may be dynamic."""
        shape = [*form.lead_axes, form.features]
        if not form.dynamic:
            return self.input(shape)
        signature = [*shape]
        signature[0 if form.time_major else 1] = -1
        return self.input(shape, shape_signature=signature)

    def weights(self, *shape: int) -> Tensor:
        """Return constant weights."""
        if self.dtype == "float32":
            return self.vector(*shape)
        if self.dtype == "float16":
            half = self.constant(self.generator.uniform(-0.5, 0.5, shape).astype(np.float16))
            return self.op("DEQUANTIZE", [half], [shape], dtype="float32")[0]
        integers = self.generator.integers(-127, 127, shape, np.int8, endpoint=True)
        scale = self.generator.uniform(0.8, 1.2) / 256
        return self.constant(integers.view(self.dtype), dtype=self.dtype, scale=scale)

    def vector(self, *shape: int) -> Tensor:
        """Return a constant float vector."""
        return self.constant(self.generator.uniform(-0.5, 0.5, shape).astype(np.float32))

    def state(self, *shape: int) -> Tensor:
        """Return a float state; see `Form.initial`."""
        if self.initial == "given":
            return self.input(shape, variable=True)
        if self.initial == "one" and self.states:
            return self.states[0]
        state = self.tensor(shape, variable=True)
        self.states.append(state)
        if self.initial in ("one", "computed"):
            self.op("TANH", [self.input(shape)], [state])
        elif self.initial:
            _compute_from_constants(self, self.initial, state)
        return state

    def gates(self, form: Form, make: Callable[[], Tensor]) -> Tensors:
        """Return a tensor for each gate; a coupled cell has no input gate."""
        return [None if form.coupled and not i else make() for i in range(4)]

    def cell(self, form: Form) -> Tensors:
        """Return the parameters of an LSTM in one direction, in the order of its inputs."""
        n, made = form.cells, form.output_units
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


def _compute_from_constants(m: Model, code: str, state: Tensor) -> None:
    """Add an operator that computes a state from constants."""
    rows, columns = state.shape
    real = m.generator.uniform(-1, 1, (rows, columns)).astype(np.float32)
    integers = m.generator.integers(-128, 127, (rows, columns), np.int8)
    inputs = {
        "DEQUANTIZE": lambda: [m.constant(real.astype(np.float16))],
        "DEQUANTIZE int8": lambda: [m.constant(integers, scale=0.01)],
        "EXP": lambda: [m.constant(real)],
        "FILL": lambda: [m.constant([rows, columns]), m.constant(np.array(0.7, np.float32))],
        "GATHER": lambda: [m.constant(real), m.constant([*range(rows)][::-1])],
        "TILE": lambda: [m.constant(real[:1]), m.constant([rows, 1])],
    }
    m.op(code.split(maxsplit=1)[0], inputs[code](), [state])


def lstm(form: Form) -> bytes:
    """Build UNIDIRECTIONAL_SEQUENCE_LSTM, or LSTM if the form has a single step."""
    m = Model(form.weights, form.initial)
    norms: Tensors = [None] * 4
    x = m.sequence(form)
    cell = m.cell(form)
    if form.normalized:
        norms = m.gates(form, lambda: m.vector(form.cells))
    n = form.batch
    states = [
        m.state(n * k) if form.flat else m.state(n, k) for k in (form.output_units, form.cells)
    ]
    code = "LSTM" if form.single else "UNIDIRECTIONAL_SEQUENCE_LSTM"
    operands = [x, *cell, *states, *norms]
    m.output(
        *m.op(
            code,
            operands,
            [[*form.lead_axes, form.output_units]],
            **form.options,
            **form.clip_options,
        )
    )
    return m.bytes()


def _outputs(form: Form, sizes: Sequence[int]) -> list[list[int]]:
    return [[*form.lead_axes, n] for n in ([sum(sizes)] if form.merged else sizes)]


def bidirectional_lstm(form: Form) -> bytes:
    """Build BIDIRECTIONAL_SEQUENCE_LSTM; both directions have the same number of cells."""
    m = Model(form.weights, form.initial)
    x = m.sequence(form)
    more = {"added": form.more, "crossed": form.features, "": 0}[form.auxiliary]
    extra = m.input([*form.lead_axes, more]) if more else None
    cells = [*m.cell(form), *m.cell(form)]
    states = [m.state(form.batch, n) for n in (form.output_units, form.cells) * 2]
    added: Tensors = [None] * 8
    if form.auxiliary == "added":
        added = [t for _ in "01" for t in m.gates(form, lambda: m.weights(form.cells, more))]
    m.output(
        *m.op(
            "BIDIRECTIONAL_SEQUENCE_LSTM",
            [x, *cells, *states, extra, *added],
            _outputs(form, (form.output_units, form.output_units)),
            merge_outputs=form.merged,
            **form.options,
            **form.clip_options,
        )
    )
    return m.bytes()


def rnn(form: Form) -> bytes:
    """Build UNIDIRECTIONAL_SEQUENCE_RNN, or RNN if the form has a single step."""
    m, n = Model(form.weights, form.initial), form.cells
    x = m.sequence(form)
    operands = [x, m.weights(n, form.features), m.weights(n, n), m.vector(n)]
    code = "RNN" if form.single else "UNIDIRECTIONAL_SEQUENCE_RNN"
    operands.append(m.state(form.batch, n))
    m.output(*m.op(code, operands, [[*form.lead_axes, n]], **form.options))
    return m.bytes()


def bidirectional_rnn(form: Form) -> bytes:
    """Build BIDIRECTIONAL_SEQUENCE_RNN."""
    m, sizes = Model(form.weights, form.initial), (form.cells, form.back)
    operands: Tensors = [m.sequence(form)]
    more = {"added": form.more, "crossed": form.features, "": 0}[form.auxiliary]
    extra = m.input([*form.lead_axes, more]) if more else None
    for n in sizes:
        operands += [m.weights(n, form.features), m.weights(n, n), m.vector(n)]
        operands.append(m.state(form.batch, n))
    added = [m.weights(n, more) if form.auxiliary == "added" else None for n in sizes]
    m.output(
        *m.op(
            "BIDIRECTIONAL_SEQUENCE_RNN",
            [*operands, extra, *added],
            _outputs(form, sizes),
            merge_outputs=form.merged,
            **form.options,
        )
    )
    return m.bytes()


def svdf(form: Form, *, rank: int = 2, bias: bool = True) -> bytes:
    """Build SVDF; each unit has several filters."""
    m, filters = Model(form.weights, form.initial), form.cells * rank
    operands = [
        m.input([form.batch, form.features]),
        m.weights(filters, form.features),
        m.weights(filters, form.times),
        m.vector(form.cells) if bias else None,
        m.state(form.batch, filters * form.times),
    ]
    m.output(
        *m.op(
            "SVDF",
            operands,
            [[form.batch, form.cells]],
            rank=rank,
            fused_activation_function=form.activation,
            asymmetric_quantize_inputs=form.asymmetric,
        )
    )
    return m.bytes()


def basic_lstm(form: Form | None = None) -> bytes:
    """Build LSTM with the kernel BASIC; its outputs are the outputs of the model."""
    m = Model(initial=form.initial if form else "")
    x, h = m.input([3, 7]), m.state(3, 11)
    operands = [x, h, m.weights(44, 18), m.vector(44), m.state(3, 11)]
    m.output(
        *m.op(
            "LSTM",
            operands,
            [[3, 11], [3, 11], [3, 18], [3, 44]],
            kernel_type="BASIC",
            fused_activation_function="TANH",
        )
    )
    return m.bytes()


class IntegerModel(Model):
    """A model with integer activations."""

    X = 1 / 40  # scale of x, with zero point 5
    H = 1 / 120  # scale of the output, with zero point -7

    def __init__(self) -> None:
        super().__init__("int8")

    def constant_int16(self, *shape: int, spread: float = 0.5) -> Tensor:
        """Return an int16 constant."""
        integers = self.generator.integers(-32767, 32767, shape, np.int16, endpoint=True)
        return self.constant(integers, scale=spread / 32767)

    def bias(self, scale: float, *shape: int) -> Tensor:
        """Return an int32 constant for numbers within 1/2."""
        most = int(0.5 / scale)
        integers = self.generator.integers(-most, most, shape, np.int32, endpoint=True)
        return self.constant(integers, scale=scale)


def scale_of(tensor: Tensor) -> float:
    """Return the scale of a tensor."""
    return float(tensor.quantization.scale[0])


def integer_lstm(form: Form) -> bytes:
    """Build UNIDIRECTIONAL_SEQUENCE_LSTM or LSTM with int8 data and an int16 cell."""
    m, n, made = IntegerModel(), form.cells, form.output_units
    x = m.input([*form.lead_axes, form.features], dtype="int8", scale=m.X, zero_point=5)
    weights = m.gates(form, lambda: m.weights(n, form.features))
    recurrent = m.gates(form, lambda: m.weights(n, made))
    looking: Tensors = [None] * 3
    if form.peephole:
        looking = [None if form.coupled and not i else m.constant_int16(n) for i in range(3)]
    norms: Tensors = [None] * 4
    if form.normalized:
        norms = m.gates(form, lambda: m.constant_int16(n, spread=1))
    biases: Tensors = []
    for w, norm in zip(weights, norms, strict=True):
        scale = 2**-10 * scale_of(norm) if norm else 0 if w is None else m.X * scale_of(w)
        biases.append(m.bias(scale, n) if w else None)
    differs = form.projection or form.rescaled
    hidden, zero = (1 / 110, form.hidden_zero) if differs else (m.H, -7)
    of_state, of_output = ((1 / 100, 4), (1 / 140, 9)) if form.rescaled else ((m.H, -7), (m.H, -7))
    projection = m.weights(made, n) if form.projection else None
    added = None
    if projection and form.projection_bias:
        added = m.bias(hidden * scale_of(projection), made)
    states = [
        m.tensor(
            [form.batch, made],
            dtype="int8",
            scale=of_state[0],
            zero_point=of_state[1],
            variable=True,
        ),
        m.tensor([form.batch, n], dtype="int16", scale=2**-11, variable=True),
    ]
    between = [m.tensor([1], dtype="int16", scale=2**-12 * k) for k in (1, 0.75, 1.5, 1.25)]
    between.append(m.tensor([1], dtype="int8", scale=hidden, zero_point=zero))
    operands = [x, *weights, *recurrent, *looking, *biases, projection, added, *states, *norms]
    code = "LSTM" if form.single else "UNIDIRECTIONAL_SEQUENCE_LSTM"
    m.output(
        *m.op(
            code,
            operands,
            [[*form.lead_axes, made]],
            scale=of_output[0],
            zero_point=of_output[1],
            intermediates=between,
            **form.options,
            **form.clip_options,
        )
    )
    return m.bytes()


def integer_svdf(form: Form, *, rank: int = 2, bias: bool = True, dtype: str = "int16") -> bytes:
    """Build SVDF with int8 data; states and time weights have the type `dtype`."""
    m, filters = IntegerModel(), form.cells * rank
    scale, zero = {"int16": (1 / 4096, 0), "int8": (1 / 60, -9)}[dtype]
    times = (m.constant_int16 if dtype == "int16" else m.weights)(filters, form.times)
    state = m.tensor(
        [form.batch, filters * form.times],
        dtype=dtype,
        scale=scale,
        zero_point=zero,
        variable=True,
    )
    operands = [
        m.input([form.batch, form.features], dtype="int8", scale=m.X, zero_point=5),
        m.weights(filters, form.features),
        times,
        m.bias(scale_of(times) * scale, form.cells) if bias else None,
        state,
    ]
    m.output(
        *m.op(
            "SVDF",
            operands,
            [[form.batch, form.cells]],
            rank=rank,
            scale=1 / 20,
            zero_point=-128,
            fused_activation_function="RELU",
        )
    )
    return m.bytes()


def integer_basic_lstm(outputs: int = 4) -> bytes:
    """Build LSTM with the kernel BASIC, uint8 data, an int16 cell and this number of outputs."""
    m = IntegerModel()
    near: TensorFields = {"dtype": "uint8", "scale": 1 / 128, "zero_point": 128}
    cell: TensorFields = {"dtype": "int16", "scale": 2**-11}
    old_h: TensorFields = {**near, "variable": True}
    old_c: TensorFields = {**cell, "variable": True}
    x, h = m.input([3, 7], **near), m.tensor([3, 11], **old_h)
    integers = m.generator.integers(0, 255, (44, 18), np.uint8, endpoint=True)
    w = m.constant(integers, scale=1 / 256, zero_point=120)
    c = m.tensor([3, 11], **old_c)
    made = [
        m.tensor([3, 11], **near),
        m.tensor([3, 11], **cell),
        m.tensor([3, 18], **near),
        m.tensor([3, 44], dtype="int16", scale=2**-12),
    ]
    m.op(
        "LSTM",
        [x, h, w, m.bias(2**-15, 44), c],
        made,
        kernel_type="BASIC",
        fused_activation_function="TANH",
    )
    m.output(*made[:outputs])
    return m.bytes()
