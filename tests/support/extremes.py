"""Models with the largest possible integer products, and LiteRT's outputs.

Sums of two products often exceed 16 bits here. The output shows each overflow: its scale is the
smallest for which the largest sum fits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from ai_edge_litert.interpreter import Interpreter

from tests.golden.records import assets
from tests.op.recurrent import cells
from tests.op.recurrent.cells import Form
from tests.quantized.layers import LIMITS, Layer, Shape
from tests.quantized.test_hybrid import CASES as HYBRID, hybrid, takes
from tests.quantized.test_products import CASES, SCHEMES, SHAPES, STEPS, WINDOW
from tests.quantized.test_recurrent import HYBRID_TOLERANCE
from tests.support import Build, random_inputs
from tests.support.facts import carrier
from tests.support.runtimes import Array, reference

_PLAIN = {**WINDOW, "stride_h": 1}
# Slightly larger than the kernels' blocks of rows, columns and terms.
WIDE = {
    "1x1": Shape("CONV_2D", [1, 5, 7, 67], [37, 1, 1, 67], [1, 5, 7, 37], 0, _PLAIN),
    "3x3": Shape("CONV_2D", [1, 6, 5, 16], [35, 3, 3, 16], [1, 6, 5, 35], 0, _PLAIN),
    "wide groups": Shape("CONV_2D", [1, 5, 7, 32], [34, 3, 3, 16], [1, 5, 7, 34], 0, _PLAIN),
    "depthwise": Shape("DEPTHWISE_CONV_2D", [1, 7, 5, 35], [1, 3, 3, 35], [1, 7, 5, 35], 3, _PLAIN),
    "depthwise 5x5": Shape(
        "DEPTHWISE_CONV_2D", [1, 7, 5, 16], [1, 5, 5, 16], [1, 7, 5, 16], 3, _PLAIN
    ),
    "one channel": Shape("CONV_2D", [1, 7, 5, 1], [19, 3, 3, 1], [1, 7, 5, 19], 0, _PLAIN),
    "four filters": Shape(
        "DEPTHWISE_CONV_2D", [1, 7, 5, 5], [1, 3, 3, 20], [1, 7, 5, 20], 3, _PLAIN
    ),
    "backwards": Shape("TRANSPOSE_CONV", [1, 3, 5, 16], [9, 3, 3, 16], [1, 5, 5, 9], 0, STEPS),
    "one row": Shape("FULLY_CONNECTED", [1, 135], [67, 135], [1, 67]),
    "rows": Shape("FULLY_CONNECTED", [19, 135], [67, 135], [19, 67]),
}
_SCHEMES = ("uint8", "int8", "int8 per channel", "int4 per channel", "int16 per channel")
# At least 2^18 multiplications, so that they are products of integers.
_LARGE = {
    "large row": Shape("FULLY_CONNECTED", [1, 1031], [521, 1031], [1, 521]),
    "large rows": Shape("FULLY_CONNECTED", [5, 521], [257, 521], [5, 257]),
    "large kept axes": Shape(
        "FULLY_CONNECTED", [1, 5, 521], [257, 521], [1, 5, 257], 0, {"keep_num_dims": True}
    ),
}
# Fewer multiplications for one row, and more for several.
_MEDIUM = {
    "medium row": Shape("FULLY_CONNECTED", [1, 350], [300, 350], [1, 300]),
    "medium rows": Shape("FULLY_CONNECTED", [3, 350], [300, 350], [3, 300]),
}


class Sample(NamedTuple):
    """A model, its inputs and LiteRT's outputs in each run, and the allowed difference."""

    name: str
    data: bytes
    runs: Sequence[Sequence[Array]]
    want: Sequence[Sequence[Array]]
    steps: int
    tolerance: float

    @staticmethod
    def of(
        name: str,
        data: bytes,
        runs: Sequence[Sequence[Array]],
        *,
        steps: int = 1,
        tolerance: float = 1e-5,
        default_kernels: bool = False,
    ) -> Sample:
        """Return a sample with the outputs of LiteRT."""
        want, untrue = reference(data, runs, default_kernels=default_kernels)
        if untrue:
            raise ValueError("; ".join(untrue))
        return Sample(name, data, runs, want, steps, tolerance)


def extreme(dtype: str, shape: Sequence[int], channel: int, *, least: int | None = None) -> Array:
    """Return integers whose pattern depends on the channel, in a cycle.

    The patterns are: all largest, all smallest, largest and smallest alternating, alternating in
    pairs, either extreme at random, and any integer at random.
    """
    low, high = LIMITS[dtype]
    low = low if least is None else least
    generator = np.random.default_rng([*shape, channel])
    count = shape[channel]
    rest = int(np.prod(shape)) // count
    places = np.arange(rest)
    turns = [
        np.full(rest, high),
        np.full(rest, low),
        np.where(places % 2, high, low),
        np.where(places % 4 < 2, high, low),
        generator.choice([low, high], rest),
        generator.integers(low, high, rest, endpoint=True),
    ]
    rows = np.stack([turns[i % len(turns)] for i in range(count)]).astype(carrier(dtype))
    sizes = [count, *(n for axis, n in enumerate(shape) if axis != channel)]
    return np.ascontiguousarray(np.moveaxis(rows.reshape(sizes), 0, channel))


@dataclass(frozen=True)
class Extreme(Layer):
    """A layer with extreme weights; two of its inputs are all largest and all smallest.

    `least` is the least weight; None for that of the type.
    """

    least: int | None = None

    @cached_property
    def weights(self) -> Array:
        """The integers in the file."""
        return extreme(self.scheme.w, self.shape.w, self.shape.channel, least=self.least)

    @cached_property
    def inputs(self) -> list[Array]:
        """The inputs; the first inputs make the largest sums."""
        low, high = LIMITS[self.scheme.x]
        kind = carrier(self.scheme.x)
        either = self._random(4).choice(np.array([low, high], kind), self.shape.x)
        middle = np.full(self.shape.x, high // 2 + 1, kind)  # sums of two products are ties
        full = [np.full(self.shape.x, each, kind) for each in (high, low)]
        return [*full, either, middle, super().inputs[0]]


def layers() -> Iterator[Sample]:
    """Yield layers of integers, of every type."""
    wide = ((shape, scheme) for shape in WIDE for scheme in _SCHEMES)
    for name, scheme in (*CASES, *wide):
        if (name, scheme) in _NOT_TAKEN:
            continue
        shape = SHAPES[name] if name in SHAPES else WIDE[name]
        layer = Extreme(shape, SCHEMES[scheme])
        yield Sample.of(f"{name}, {scheme}", layer.model(), [[x] for x in layer.inputs])
        if name in WIDE and SCHEMES[scheme].w == "int8":  # adaptive without several -128
            layer = replace(layer, least=-127)
            runs = [[x] for x in layer.inputs]
            yield Sample.of(f"{name}, {scheme} from -127", layer.model(), runs)


_NOT_TAKEN = {("backwards", "int4 per channel")}


def products() -> Iterator[Sample]:
    """Yield BATCH_MATMUL of integers."""
    for left, right, made in (
        ("int8", "int8", "int8"),
        ("int8", "int8", "int32"),
        ("int16", "int8", "int16"),
    ):
        for constant in (False, True):
            for rows in (1, 19):
                yield _product(left, right, made, rows, constant=constant)


def _product(left: str, right: str, made: str, rows: int, *, constant: bool) -> Sample:
    terms, columns = 70, 37
    wide = left == "int16"
    w = extreme(right, (2, terms, columns), 2)
    zero = 0 if wide else 3
    m = Build()
    operands = [m.input([2, rows, terms], dtype=left, scale=0.03, zero_point=zero)]
    fields: dict[str, Any] = {"dtype": right, "scale": 0.01, "zero_point": 0 if wide else -7}
    operands.append(m.constant(w, **fields) if constant else m.input(w.shape, **fields))
    largest = terms * 135 * (32768 if wide else 131)
    scale = 0.03 * 0.01 * largest / (32767 if wide else 127)
    words: dict[str, Any] = {"dtype": made}
    if made != "int32":
        words |= {"scale": scale, "zero_point": 0 if wide else 5}
    m.output(*m.op("BATCH_MATMUL", operands, [m.tensor([2, rows, columns], **words)]))
    low, high = LIMITS[left]
    generator = np.random.default_rng(rows)
    given = [
        np.full((2, rows, terms), high),
        np.full((2, rows, terms), low),
        generator.choice([low, high], (2, rows, terms)),
    ]
    runs = [[x.astype(carrier(left))] + ([] if constant else [w]) for x in given]
    name = f"BATCH_MATMUL, {left} by {right} to {made}, {rows} rows, constant={constant}"
    return Sample.of(name, m.bytes(), runs, steps=0 if made == "int32" else 1)


# Operator, type, a scale for each channel, and whether the data has a zero point.
_HYBRID = (
    *(HYBRID),
    *(
        (name, dtype, per_channel, asymmetric)
        for name in ("one row", "rows", *_MEDIUM, *_LARGE)
        for dtype in ("int8", "int4")
        for per_channel in (False, True)
        for asymmetric in (False, True)
    ),
    *((name, "uint8", False, False) for name in ("one row", "rows", *_MEDIUM, *_LARGE)),
    *(
        ("1x1", dtype, per_channel, per_channel)
        for dtype in ("int8", "int4")
        for per_channel in (False, True)
    ),
)


def hybrids() -> Iterator[Sample]:
    """Yield hybrid layers: float data and integer weights."""
    shapes = {**SHAPES, **WIDE, **_MEDIUM, **_LARGE}
    for name, dtype, per_channel, asymmetric in _HYBRID:
        yield _hybrid(name, shapes[name], dtype, per_channel=per_channel, asymmetric=asymmetric)


def _hybrid(name: str, shape: Shape, dtype: str, *, per_channel: bool, asymmetric: bool) -> Sample:
    dense = shape.code == "FULLY_CONNECTED"
    options: dict[str, Any] = {"asymmetric_quantize_inputs": True} if asymmetric and dense else {}
    # LiteRT's kernels for AVX2 treat -128 as 128; uint8 weights are read as the bits of int8.
    # LiteRT's kernel for an even number of int4 weights adds 7 to each of them and stores the sum
    # as 4 bits without a sign (fully_connected_common.h): of -8 it makes 15, and overwrites the
    # weight that shares the byte. Converters quantize to -7 ... 7.
    signed = "int8" if dtype == "uint8" else dtype
    least = -7 if dense and dtype == "int4" and shape.w[1] % 2 == 0 else -127
    w = extreme(signed, shape.w, shape.channel, least=max(LIMITS[signed][0], least))
    data = hybrid(shape, dtype, per_channel=per_channel, integers=w.view(carrier(dtype)), **options)
    delegated = takes(shape, dtype)
    least = -128 if asymmetric or delegated else -127
    generator, runs = np.random.default_rng(shape.x), []
    for many in (0.5, 0.95):  # the fraction of largest elements: half, and nearly all
        integers = generator.choice([least, 127], shape.x, p=(1 - many, many))
        integers.reshape(-1, shape.x[-1])[:, :2] = least, 127
        runs.append([(integers / 8).astype(np.float32)])
    words = f"{name}, {dtype}, per_channel={per_channel}, asymmetric={asymmetric}"
    return Sample.of(f"hybrid {words}", data, runs, default_kernels=delegated)


def float_products() -> Iterator[Sample]:
    """Yield products of dequantized data: ONNX Runtime multiplies the integers."""
    features, out = 350, 300  # as many features as `_MEDIUM`
    for code, dtype, rows in product(
        ("FULLY_CONNECTED", "BATCH_MATMUL"), ("int8", "uint8"), (1, 3)
    ):
        m, shape = Build(), (rows, features)
        x = m.input(shape, dtype=dtype, scale=0.05, zero_point=3)
        (real,) = m.op("DEQUANTIZE", [x], [m.tensor(shape)])
        w = extreme("int8", (out, features), 0, least=-127)
        w = w if code == "FULLY_CONNECTED" else np.ascontiguousarray(w.T)
        m.output(*m.op(code, [real, m.constant(w, scale=0.01)], [m.tensor((rows, out))]))
        runs = [[np.full(shape, each, dtype)] for each in LIMITS[dtype]]
        name = f"dequantized, {code}, {dtype}, {rows} rows"
        yield Sample.of(name, m.bytes(), runs, tolerance=1e-5)


def recurrent() -> Iterator[Sample]:
    """Yield recurrent cells: hybrid cells, and integer cells."""
    wide = Form(features=35, cells=33, times=4)
    models = {
        "lstm": cells.lstm(replace(wide, weights="int8")),
        "rnn": cells.rnn(replace(wide, weights="int8")),
        "svdf": cells.svdf(replace(wide, weights="int8")),
        "one step": cells.lstm(replace(wide, weights="int8", single=True)),
    }
    integers = {
        "integer lstm": cells.integer_lstm(wide),
        "integer step": cells.integer_lstm(replace(wide, single=True)),
        "integer svdf": cells.integer_svdf(wide),
        "basic lstm": cells.integer_basic_lstm(outputs=1),
    }
    for name, data in {**models, **integers}.items():
        runs = [random_inputs(data, seed, float32=(-2, 2)) for seed in range(4)]
        yield Sample.of(name, data, runs, tolerance=HYBRID_TOLERANCE)


_NETWORKS = ("keywords_int8", "keywords_dynamic_range", "mobilenet_int8", "mobilenet_uint8")


def networks() -> Iterator[Sample]:
    """Yield quantized models of the project.

    They are compared with XNNPACK's kernels, the default of LiteRT. These kernels round once, like
    ONNX Runtime. With a difference of one step in each layer, the last layer could differ by more.
    """
    for case in assets():
        if case.path.stem in _NETWORKS:
            data = case.path.read_bytes()
            runs = [random_inputs(data, seed, float32=(0, 1)) for seed in range(3)]
            yield Sample(case.name, data, runs, _by_xnnpack(data, runs), 1, 0.02)


def _by_xnnpack(data: bytes, runs: Sequence[Sequence[Array]]) -> list[list[Array]]:
    interpreter = Interpreter(model_content=data, num_threads=1)
    interpreter.allocate_tensors()
    made = []
    for inputs in runs:
        for port, value in zip(interpreter.get_input_details(), inputs, strict=True):
            interpreter.set_tensor(port["index"], value)
        interpreter.invoke()
        ports = interpreter.get_output_details()
        made.append([np.asarray(interpreter.get_tensor(port["index"])) for port in ports])
    return made


@cache
def samples() -> tuple[Sample, ...]:
    """Return all of them."""
    return (*layers(), *products(), *hybrids(), *float_products(), *recurrent(), *networks())
