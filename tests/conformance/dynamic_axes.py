"""Each axis of each input dynamic: one ONNX model against LiteRT resized to three sizes.

The models derive from the rows of `tests.conformance.rows`: one axis alone is dynamic, or all axes
of its size are (operands of one shape). Shape operands (the shape of a RESHAPE) are constant, or
computed from the dynamic size. The file declares 1, as converters do, or the shapes are an option
of the conversion. A model that LiteRT runs at three sizes must convert with a dynamic
axis and agree at these sizes. `tests.conformance.rows.fixed` lists the axes that are not dynamic,
with their reasons.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from tests.conformance.bench import Bench
from tests.conformance.judge import compare_output
from tests.conformance.rows import ROWS
from tests.conformance.rows.fixed import DECLARED, ENLARGED, KINDS, NO_SIZES, TOGETHER, UNSAFE
from tests.conformance.table import Case
from tests.support import Tensor, pack
from tests.support.compare import run_restored
from tests.support.facts import OPERATORS as CODES, TENSOR_TYPES
from tests.support.needs import missing_feature
from tests.support.runtimes import Array, reference, session
from tflite2onnx import ConversionError, Result, convert
from tflite2onnx.op import OPERATORS
from tflite2onnx.reader.model import read_model
from tflite2onnx.stateful import Stateful

Place = tuple[int, int]  # the number of an input, and an axis of it

_CODES = {number: code for code, number in CODES.items()}
_TYPES = {number: name for name, number in TENSOR_TYPES.items()}
_MOST_SIZES = 16  # elements of a shape operand
_COUNT = 3
COMPUTED = "computed"


class Finding(NamedTuple):
    """The result for an axis: `text` is the fault or why the axis is static, empty if dynamic.

    `name` is the operand and the axis, as in "0.1", or "computed" for a shape operand of an
    operator whose inputs have no axes.
    """

    name: str
    text: str


class Variant(NamedTuple):
    """A model, the elements of its inputs, the dynamic axes, and their size in the file."""

    data: bytes
    arrays: Sequence[Array]
    names: Sequence[str]
    places: Sequence[Place]
    size: int

    def resize_inputs(self, size: int) -> list[Array]:
        """Return the inputs with another size of the dynamic axes."""
        arrays = list(self.arrays)
        for number, axis in self.places:
            arrays[number] = _stretch(arrays[number], axis, size)
        return arrays

    @property
    def shapes(self) -> Mapping[str, Sequence[int | str]]:
        """The shapes for the converter, with a word for the dynamic axes."""
        return {
            self.names[number]: [
                "size" if (number, axis) in self.places else size
                for axis, size in enumerate(self.arrays[number].shape)
            ]
            for number in sorted({number for number, _ in self.places})
        }


class Run(NamedTuple):
    """The inputs of one size, and LiteRT's outputs."""

    size: int
    inputs: Sequence[Array]
    want: Sequence[Array]


def judge_dynamic_axes(code: str) -> list[Finding]:
    """Return the results for all axes of the inputs of an operator."""
    case = choose_case(code)
    shapes = [array.shape for array in case.build().runs[0]]
    places = [(i, axis) for i, shape in enumerate(shapes) for axis, n in enumerate(shape) if n]
    places = [place for place in places if _name(place) not in UNSAFE.get(code, {})]
    if not any(shapes):
        return [Finding(COMPUTED, _judge(case, [_variants_of_new_input(case)]))]
    findings = []
    for place in places:
        size = shapes[place[0]][place[1]]
        group = [each for each in places if shapes[each[0]][each[1]] == size]
        text = _judge(case, _variants(case, place, group if size > 1 else [place], size))
        findings.append(Finding(_name(place), text))
    return findings


def _name(place: Place) -> str:
    return f"{place[0]}.{place[1]}"


def choose_case(code: str) -> Case:
    """Return the first case of an operator, if possible with operands that are no constants."""
    row = ROWS[code]
    kind = KINDS.get(code, row.kinds[0])
    cases = [case for case in row.cases() if case.kind == kind]
    return min(cases, key=lambda case: bool(case.choice.get("constant")))


def _judge(case: Case, attempts: Iterable[Iterable[Variant]]) -> str:
    """Return the fault of the variants, or why LiteRT runs none of them.

    Of each attempt the first variant that LiteRT runs at three sizes is converted.
    """
    refused, faults = "its inputs have no axes", []
    for attempt in attempts:
        for variant in attempt:
            runs = list(islice(_runs(variant, smaller=case.row.code not in ENLARGED), _COUNT))
            if len(runs) == _COUNT:
                faults.append(_fault(case, variant, runs))
                break
            refused = f"LiteRT runs it at {sorted(run.size for run in runs)} only"
    return next(filter(None, faults), "") if faults else refused


def _variants(
    case: Case, place: Place, group: Sequence[Place], size: int
) -> Iterator[Iterator[Variant]]:
    alone = [place]
    choices = [group] if case.row.code in TOGETHER else [alone, group]
    choices = choices if group != alone else [alone]
    built = case.build()
    yield (_variant(built.data, built.runs[0], places, size) for places in choices)
    if size > 1:
        # Elements that are multiples of the size are computed too, if LiteRT runs this.
        yield (
            variant
            for multiples in (False, True)
            for places in choices
            for variant in _compute_shapes(case, places, size, place, multiples=multiples)
        )


def _variants_of_new_input(case: Case) -> Iterator[Variant]:
    """Yield variants whose shape operands are computed from the size of another input."""
    operands = _shape_operands(case.bench()[0])
    sizes = {int(n) for array in operands.values() for n in array.flat}
    for size in sorted(n for n in sizes if n > 1):
        yield from _compute_shapes(case, [], size, None, multiples=False)


def _variant(data: bytes, arrays: Sequence[Array], places: Sequence[Place], size: int) -> Variant:
    names = [tensor.name for tensor in read_model(data).graphs[0].inputs]
    return Variant(data, arrays, names, places, size)


def _compute_shapes(
    case: Case, places: Sequence[Place], size: int, place: Place | None, *, multiples: bool
) -> Iterator[Variant]:
    """Yield a variant whose shape operands are computed from an axis, or from that of a new input.

    Elements equal to the size are computed; with `multiples` also its multiples. There is none if
    no element is computed.
    """
    bench, _ = case.bench()
    graph = bench.model().subgraphs[0]
    operators, graph.operators = graph.operators, []
    operands = {
        index: array
        for index, array in _shape_operands(bench, operators).items()
        if any(_factor(n, size, multiples=multiples) for n in array.flat)
    }
    if not operands:
        return
    if place is None:
        places, place = [(len(bench.arrays), 0)], (len(bench.arrays), 0)
        source = bench.add_input((size,), "float32")
    else:
        source = _input_of(bench, place[0])
    made = {
        index: _compute_operand(bench, (source, place[1]), array, size, multiples=multiples).index
        for index, array in operands.items()
    }
    for operator in operators:
        operator.inputs = np.array([made.get(int(i), int(i)) for i in operator.inputs], np.int32)
    graph.operators += operators
    yield _variant(bench.bytes(), bench.arrays, places, size)


def _input_of(bench: Bench, number: int) -> Tensor:
    graph = bench.model().subgraphs[0]
    index = int(graph.inputs[number])
    tensor = graph.tensors[index]
    return Tensor(0, index, tuple(map(int, tensor.shape)), _TYPES[tensor.type], None)


def _shape_operands(bench: Bench, operators: Sequence[Any] | None = None) -> dict[int, Array]:
    """Return the constants that determine shapes, by the index of the tensor."""
    graph, found = bench.model().subgraphs[0], dict[int, Array]()
    for operator in graph.operators if operators is None else operators:
        code = _CODES[bench.model().operatorCodes[operator.opcodeIndex].builtinCode]
        for i in () if code in NO_SIZES else getattr(OPERATORS.get(code), "shape_inputs", ()):
            index = int(operator.inputs[i]) if i < len(operator.inputs) else -1
            tensor = graph.tensors[index]
            data = bench.model().buffers[tensor.buffer].data
            dtype = _TYPES[tensor.type]
            if index >= 0 and data and dtype in {"int32", "int64"}:
                array = np.frombuffer(data, dtype).reshape(tensor.shape)
                found |= {index: array} if array.size <= _MOST_SIZES else {}
    return found


def _factor(element: int, size: int, *, multiples: bool) -> int:
    """Return how many times the size an element is; 0 if it is not computed."""
    exact = element == size or (multiples and element % size == 0)
    return int(element) // size if exact else 0


def _compute_operand(
    m: Bench, source: tuple[Tensor, int], array: Array, size: int, *, multiples: bool
) -> Tensor:
    """Return an operand whose elements are computed from the size of an axis."""
    tensor, axis = source
    dtype = str(array.dtype)
    (shape,) = m.op("SHAPE", [tensor], [[len(tensor.shape)]], dtype=dtype, out_type=dtype)
    bounds = [m.constant([i]) for i in (axis, axis + 1, 1)]
    (length,) = m.op("STRIDED_SLICE", [shape, *bounds], [[]], shrink_axis_mask=1)
    parts = []
    for element in array.reshape(-1):
        factor = _factor(element, size, multiples=multiples)
        operands = [length, m.constant(np.asarray(factor, dtype))]
        product = m.op("MUL", operands, [[]])[0] if factor > 1 else length
        parts.append(product if factor else m.constant(np.asarray(element, dtype)))
    if array.ndim == 0:
        return parts[0]
    (row,) = m.op("PACK", parts, [[len(parts)]], values_count=len(parts))
    if array.ndim == 1:
        return row
    new = list(array.shape)
    return m.op("RESHAPE", [row, m.constant(np.array(new, np.int32))], [new], new_shape=new)[0]


def _sizes(size: int, *, smaller: bool) -> list[int]:
    """Return the sizes to try: smaller and larger ones, then multiples, then the file's size."""
    if size == 1:
        return [2, 3, 5]
    fewer = [size - 1] if smaller else []
    return [*fewer, size + 1, 2 * size + 1, 2 * size, 3 * size, 4 * size, size]


def _runs(variant: Variant, *, smaller: bool) -> Iterator[Run]:
    """Yield the runs at the sizes that LiteRT takes."""
    for size in _sizes(variant.size, smaller=smaller):
        inputs = variant.resize_inputs(size)
        try:
            want, _ = reference(variant.data, [inputs])
        except (RuntimeError, ValueError):  # of the kernel's checks
            continue
        yield Run(size, inputs, want[0])


def _stretch(array: Array, axis: int, size: int) -> Array:
    """Return an array with another size of an axis; elements that rise still do."""
    old = array.shape[axis]
    if array.dtype.kind != "f":
        return np.asarray(np.take(array, np.arange(size) * old // size, axis))
    places = np.linspace(0, old - 1, size)
    below = places.astype(int)
    above, part = np.minimum(below + 1, old - 1), places - below
    part = part.reshape(-1, *[1] * (array.ndim - axis - 1))
    low, high = (np.take(array, each, axis).astype(np.float64) for each in (below, above))
    return np.asarray(low + (high - low) * part).astype(array.dtype)


def _convert(case: Case, variant: Variant) -> Result:
    """Return the conversion with dynamic axes, from a file that declares them as 1 if possible."""
    if case.row.code in DECLARED or any(axis == 0 for _, axis in variant.places):
        return convert(variant.data, shapes=variant.shapes)
    model = schema.ModelT.InitFromPackedBuf(variant.data, 0)
    graph = model.subgraphs[0]
    for number in {number for number, _ in variant.places}:
        tensor = graph.tensors[graph.inputs[number]]
        sizes, signature = (np.array(tensor.shape, np.int32) for _ in range(2))
        axes = [axis for other, axis in variant.places if other == number]
        sizes[axes], signature[axes] = 1, -1
        tensor.shape, tensor.shapeSignature = sizes, signature
    result = convert(pack(model))
    for number, axis in variant.places:
        if axis not in result.inputs[number].symbols:
            raise ConversionError(f"axis {axis} of input {number} is static")
    return result


def _fault(case: Case, variant: Variant, runs: Sequence[Run]) -> str:
    """Return the difference of ONNX Runtime from LiteRT, or why the axes are not dynamic."""
    try:
        result = _convert(case, variant)
    except ConversionError as error:
        return str(error)
    if missing_feature(result.model):  # of an older ONNX Runtime
        return ""
    live = Stateful(session(result.model, optimize=True))
    for run in runs:
        live.reset()
        try:
            have = run_restored(result, live, run.inputs)
        except Exception as error:  # noqa: BLE001 - any error is a fault
            return f"size {run.size}: {error}"
        for place, (want, got) in enumerate(zip(run.want, have, strict=True)):
            fault, _ = compare_output(want, got, case.row.bound(case.kind))
            if fault:
                return f"size {run.size}: output {place} {fault}"
    return ""
