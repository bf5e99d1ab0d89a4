"""Check of a conversion: LiteRT and ONNX Runtime agree on the same inputs."""

from __future__ import annotations

import hashlib
import json
from importlib import import_module
from itertools import groupby
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import onnx

from tests.support.inputs import random_inputs
from tests.support.levels import draw_forms
from tests.support.runtimes import reference, session
from tflite2onnx.stateful import STATES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tests.support.runtimes import Array

    Runs = Sequence[Sequence[Array]]
    Case = tuple[str, Runs, list[list[Array]], list[str]]


class Converted(Protocol):
    """The result of a converter: a model, and a description of each input and output.

    The objects in `inputs` and `outputs` may have an `order`: the TFLite axes in the sequence in
    which ONNX stores them. Without an `order` the axes are those of TFLite.
    """

    @property
    def model(self) -> onnx.ModelProto:
        """The ONNX model."""

    @property
    def inputs(self) -> Sequence[Any]:
        """The inputs, in the sequence of the TFLite file."""

    @property
    def outputs(self) -> Sequence[Any]:
        """The outputs, in the sequence of the TFLite file."""


class Live(Protocol):
    """A session of ONNX Runtime, or a session that keeps the state of its model."""

    def run(self, names: None, feeds: dict[str, Array]) -> Sequence[Any]:
        """Return the outputs."""


def distance(want: Array, have: Array) -> Array:
    """The absolute differences of the elements; infinite where the difference is NaN."""
    if want.dtype.kind in "iu":
        # The difference of two signed extremes wraps around to the correct unsigned number.
        return (np.maximum(want, have) - np.minimum(want, have)).view(f"u{want.dtype.itemsize}")
    same = want == have
    if want.dtype.kind != "f":
        return np.where(same, 0.0, np.inf)
    with np.errstate(invalid="ignore"):
        apart = np.abs(want.astype(np.float64) - have.astype(np.float64))
    same |= np.isnan(want) & np.isnan(have)
    return np.where(same, 0.0, np.where(np.isnan(apart), np.inf, apart))


def _tolerated_difference(want: Array, tolerance: float, steps: int) -> float:
    if want.dtype.kind != "f":
        return steps if want.dtype.kind in "iu" else 0
    return tolerance * span(want)


def span(want: Array) -> float:
    """The distance of the smallest and the largest element, which is never 0.

    The range includes 0, like the range of a quantization: a constant array would have no range.
    """
    finite = want[np.isfinite(want)].astype(np.float64)
    spread = finite.max(initial=0) - finite.min(initial=0)
    return max(float(spread), float(np.finfo(np.float32).tiny))


def in_bytes(array: Array) -> Array:
    """Strings as bytes, the form in which LiteRT returns them."""
    if array.dtype.kind not in "OSU":
        return array
    strings = [text.encode() if isinstance(text, str) else text for text in array.ravel()]
    encoded: Array = np.array(strings, object).reshape(array.shape)
    return encoded


def difference(want: Array, have: Array, *, tolerance: float = 1e-5, steps: int = 0) -> str:
    """The difference of `have` from the expected array in words; empty if there is none.

    Floats may differ by `tolerance` of the range of `want` (which includes 0), integers by
    `steps`. NaN equals NaN, an infinity equals only itself; booleans and strings must be equal.
    """
    want, have = in_bytes(want), in_bytes(have)
    if want.dtype != have.dtype or want.shape != have.shape:
        return f"LiteRT makes {want.dtype}{list(want.shape)}, ONNX {have.dtype}{list(have.shape)}"
    apart, allowed = distance(want, have), _tolerated_difference(want, tolerance, steps)
    wrong = np.count_nonzero(apart > allowed)
    if not wrong:
        return ""
    worst = np.unravel_index(np.argmax(apart), apart.shape)
    return (
        f"{wrong} of {want.size} elements differ by more than {allowed:.3g}, the worst by"
        f" {apart[worst]:.6g} at {[int(place) for place in worst]}:"
        f" LiteRT {want[worst]!r}, ONNX {have[worst]!r}"
    )


def _order(port: object, rank: int) -> list[int]:
    order = getattr(port, "order", None)
    axes = list(range(rank))
    if order is None:
        return axes
    if sorted(order) != axes:
        raise AssertionError(f"{port} has the order {order}, but the rank is {rank}")
    return list(order)


def _feeds(result: Converted, inputs: Sequence[Array]) -> dict[str, Array]:
    """Return the inputs in the layouts of the ONNX model, matched by position."""
    metadata = {each.key: each.value for each in result.model.metadata_props}
    states = {each["name"] for each in json.loads(metadata.get(STATES, "[]"))}
    constants = {each.name for each in result.model.graph.initializer} | states
    names = [each.name for each in result.model.graph.input if each.name not in constants]
    if not len(names) == len(result.inputs) == len(inputs):
        raise AssertionError(
            f"the ONNX model and the result must have {len(inputs)} inputs, got {names} and"
            f" {len(result.inputs)}"
        )
    arrays = [in_pairs(value) for value in inputs]
    return {
        name: np.asarray(value.transpose(_order(port, value.ndim)), order="C")
        for name, port, value in zip(names, result.inputs, arrays, strict=True)
    }


def in_pairs(array: Array) -> Array:
    """Complex numbers as pairs of real numbers on a new last axis; other types unchanged."""
    return np.stack([array.real, array.imag], -1) if array.dtype.kind == "c" else array


def _in_tflite_order(port: object, array: Array) -> Array:
    return array.transpose(np.argsort(_order(port, array.ndim)))


def run_restored(result: Converted, live: Live, inputs: Sequence[Array]) -> list[Array]:
    """The outputs of a session of a converted model, in TFLite's layout."""
    have = [np.asarray(output) for output in live.run(None, _feeds(result, inputs))]
    infos = result.model.graph.output[: len(result.outputs)]  # states come after them
    for info, array in zip(infos, have, strict=True):
        if fault := _shape_mismatch(info, array):
            raise AssertionError(fault)
    return [
        _in_tflite_order(port, in_bytes(array))
        for port, array in zip(result.outputs, have, strict=True)
    ]


def _shape_mismatch(info: onnx.ValueInfoProto, have: Array) -> str:
    """The difference of an output's shape from the shape that the ONNX model declares, in words."""
    declared = [
        dim.dim_value if dim.HasField("dim_value") else None
        for dim in info.type.tensor_type.shape.dim
    ]
    sizes = zip(declared, have.shape, strict=False)
    if len(declared) == have.ndim and all(size in {None, actual} for size, actual in sizes):
        return ""
    return f"ONNX declares the shape {declared} but makes {list(have.shape)}"


def _faults(
    result: Converted, want: Sequence[Array], have: Sequence[Array], allowed: Mapping[str, Any]
) -> Iterable[str]:
    infos = result.model.graph.output[: len(result.outputs)]  # states come after them
    if not len(want) == len(have) == len(result.outputs):
        yield (
            f"the ONNX model and the result must have {len(want)} outputs, got {len(have)} and"
            f" {len(result.outputs)}"
        )
        return
    for place, (port, info) in enumerate(zip(result.outputs, infos, strict=True)):
        made = _in_tflite_order(port, have[place])
        fault = _shape_mismatch(info, have[place]) or difference(want[place], made, **allowed)
        if fault:
            yield f"output {place} ({info.name}): {fault}"


def _cases(
    data: bytes,
    seeds: Iterable[int],
    inputs: Sequence[Array] | None,
    ranges: Mapping[str, tuple[float, float]] | None,
    runs: int,
) -> Iterable[tuple[str, Runs]]:
    if inputs is not None:
        yield "given inputs", [inputs] * runs
        return
    for seed in seeds:
        numbers = range(seed * runs, (seed + 1) * runs)
        yield f"seed {seed}", [random_inputs(data, n, **ranges or {}) for n in numbers]


def _default_convert() -> Callable[..., Converted]:
    # Imported late, so that these helpers can be tested without the converter.
    convert: Callable[..., Converted] = import_module("tflite2onnx").convert
    return convert


def _with_random_layout(data: bytes, seed: int, options: Mapping[str, Any]) -> Converted:
    model = import_module("tflite2onnx.reader.model").read_model(data)
    planner = import_module("tests.support.layouts").random_planner(seed)
    chosen = import_module("tflite2onnx.options").ConversionOptions(**options)
    convert: Callable[..., Converted] = import_module("tflite2onnx.stages").convert_model
    return convert(model, chosen, planner=planner)


def _check_cases(
    result: Converted,
    cases: Iterable[Case],
    optimize: Iterable[bool],
    allowed: Mapping[str, Any],
    name: str = "",
) -> None:
    """Raise an AssertionError if a converted model does not have the expected outputs."""
    onnx.checker.check_model(result.model, full_check=True)
    stateful = import_module("tflite2onnx.stateful").Stateful
    for level in optimize:
        live = stateful(session(result.model, optimize=level))
        for label, runs, wanted, _ in cases:
            live.reset()
            for number, (arrays, want) in enumerate(zip(runs, wanted, strict=True)):
                have = [np.asarray(output) for output in live.run(None, _feeds(result, arrays))]
                faults = "; ".join(_faults(result, want, have, allowed))
                if faults:
                    run = f", run {number}" if number else ""
                    raise AssertionError(f"{name}{label}{run}, optimize={level}: {faults}")


def check(  # noqa: PLR0913 - options, all of them keywords
    data: bytes,
    *,
    seeds: Iterable[int] = (0, 1),
    inputs: Sequence[Array] | None = None,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    tolerance: float = 1e-5,
    steps: int = 0,
    convert: Callable[..., Converted] | None = None,
    optimize: Iterable[bool] = (True, False),
    random_layouts: Iterable[int] = (0, 1),
    runs: int = 1,
    declared: bool = True,
    default_kernels: bool = False,
    **convert_options: object,
) -> Converted:
    """Convert a model and compare the outputs of ONNX Runtime with those of LiteRT.

    `declared` is whether the file must declare the shapes that LiteRT computes. With
    `default_kernels` LiteRT runs XNNPACK where it can, as it does by default.

    The inputs are `inputs` (in TFLite's layout), or random inputs for each of `seeds` within
    `ranges` (see `draw_inputs`). `tolerance` and `steps` are those of `difference`. `convert`
    is any function of (data, **convert_options), by default tflite2onnx.convert. `optimize` is the
    optimization level of ONNX Runtime: all graph optimizations, none, or both in turn. Each case
    has `runs` consecutive runs, so that a model with state must keep the same state as LiteRT.

    If `convert` is not given, the model is converted again for each seed in `random_layouts`, with
    every tensor in a random layout that its operators allow. The outputs of these models must be
    the same, too (see `tests.support.layouts`). The first level of the tests runs the planned
    layout at the first of `optimize`, and draws few of the other layouts and levels.

    Returns:
        The result of `convert`.

    Raises:
        AssertionError: an output differs, or its declared shape does.
        ValueError: the TFLite file declares a tensor with another type or shape than LiteRT
            computes; then the test is wrong, not the converter.
    """
    cases = [
        (label, sequence, *reference(data, sequence, default_kernels=default_kernels))
        for label, sequence in _cases(data, seeds, inputs, ranges, runs)
    ]
    for _, _, _, untrue in cases:
        if untrue and declared:
            raise ValueError("; ".join(untrue))
    allowed = {"tolerance": tolerance, "steps": steps}
    layouts = (None, *(() if convert else random_layouts))
    result = (convert or _default_convert())(data, **convert_options)
    forms = [(layout, level) for layout in layouts for level in optimize]
    drawn = draw_forms(forms, hashlib.sha1(data, usedforsecurity=False).hexdigest())
    for layout, levels in groupby(drawn, key=lambda form: form[0]):
        planned = layout is None
        made = result if planned else _with_random_layout(data, layout, convert_options)
        name = "" if planned else f"random layout {layout}, "
        _check_cases(made, cases, [level for _, level in levels], allowed, name)
    return result
