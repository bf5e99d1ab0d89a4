"""Compare the tensors between LiteRT's operators with the values that the ONNX nodes compute.

Only ONNX values that store a tensor of the TFLite model are compared; other values are
intermediate results of one operator. Values are converted to TFLite's layout and element type
before the comparison.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np

from tflite2onnx.builder.builder import Port
from tflite2onnx.graph import Graph, Op
from tflite2onnx.op import find_operator
from tflite2onnx.op.control_flow.lowered import CALLS
from tflite2onnx.quantization.storage import (
    Storage,
    decode_constant,
    encode_numbers,
    is_quantized,
    move_zero_point,
    same_quantization,
)
from tflite2onnx.tensor import Array, DType, Quantization, Shape, Tensor
from tflite2onnx.verification.runtimes import make_session, read_inner_tensor, run_onnx
from tflite2onnx.verification.segments import MOST_BYTES, cut_segments
from tflite2onnx.verification.tolerance import (
    QUANTIZED,
    Difference,
    Limits,
    compare,
    subtract_integers,
)
from tflite2onnx.writer import Skeleton

MOST_STEPS = 16  # Differences of 16 steps or more are counted together.
# Operators whose results are between -1 and 1. Their absolute error is limited even for small
# results.
_OF_UNIT_RANGE = {"LOGISTIC", "SOFTMAX", "TANH"}
_COARSE = 1e-6
# The accepted signal-to-noise ratio, in dB, of the result of a hybrid operator (float activations,
# quantized weights) in a network. The kernel rounds its activations to 127 steps up to the largest
# activation.
_HYBRID = 10.0
# The accepted difference of a hybrid operator for the same inputs as LiteRT's, as a fraction of the
# range. Published networks reach 0.035.
_HYBRID_PART = 0.05
_SIGN = np.uint8(128)
_BYTE = 8  # bits
# Element types that numpy lacks.
_NO_NUMBERS = {DType.BFLOAT16, DType.FLOAT8_E4M3FN, DType.FLOAT8_E5M2}


@dataclass(frozen=True)
class TensorComparison:
    """One tensor of the TFLite model, and its difference from the ONNX model's value.

    `operator` and `index` identify the operator that computes the tensor. `value` is its name in
    the ONNX model, where axis i is the axis order[i] of `shape`. `steps` counts the elements of a
    quantized tensor that are 0, 1, 2... steps apart; the last of 17 counts is for 16 steps and
    more. `steps` is () for other tensors. `joined` are the operators before `operator` whose
    outputs the ONNX model does not have: the difference is of all of them together.
    """

    difference: Difference
    operator: str
    index: int
    value: str
    shape: Shape
    order: tuple[int, ...]
    steps: tuple[int, ...] = ()
    joined: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of the tensor in the TFLite model."""
        return self.difference.name

    def with_sample(self, sample: int) -> TensorComparison:
        return replace(self, difference=self.difference.with_sample(sample))

    def select_nearer(self, other: TensorComparison, kernels: str) -> TensorComparison:
        """Return the comparison with other kernels of LiteRT if it is accepted and nearer."""
        nearer = self.difference.select_nearer(other.difference, kernels)
        return self if nearer is self.difference else replace(other, difference=nearer)

    def select_worse(self, other: TensorComparison) -> TensorComparison:
        """Return the combined result of two samples: the worse difference, and added counts."""
        counts = tuple(map(sum, zip_longest(self.steps, other.steps, fillvalue=0)))
        return replace(
            self, difference=self.difference.select_worse(other.difference), steps=counts
        )


class TensorPlace(NamedTuple):
    """A tensor in both models: its index in LiteRT, its value in ONNX, and its operators.

    `ops` are the operators that compute the tensor from other tensors in both models: `op`, and the
    operators before `op` whose outputs the ONNX model does not have. `others` are these operators
    if the ONNX model computes what a RESHAPE reads and what it returns by the same nodes: other
    operators read the former as the tensor of the latter. `called` are the operators of the
    sub-graphs that `ops` call.
    """

    tensor: Tensor
    litert: int
    port: Port
    op: Op
    ops: tuple[Op, ...]
    others: tuple[Op, ...]
    called: tuple[Op, ...]


def match_places(
    graph: Graph,
    skeleton: Skeleton,
    compares: Callable[[Tensor, Port], bool] = lambda *_: True,
    graphs: Sequence[Graph] = (),
) -> list[TensorPlace]:
    """Return the tensors of a sub-graph that both models have, in order of execution.

    `graphs` are the sub-graphs of the model, in order, whose operators count in a limit.

    Tensors that a pass has removed are only in one model. Tensors of an element type that ONNX
    Runtime or numpy does not support cannot be compared, and others only if the function says so.
    """
    ports = {port.tensor.name: port for port in skeleton.tensors}
    indices = {tensor: i for i, tensor in enumerate(graph.tensors)}
    producers = {tensor: op for op in graph.ops for tensor in op.outputs}
    stored = ((t, ports[t.name]) for t in producers if t.name in ports)
    tensors = {t for t, port in stored if _is_comparable(t, port) and compares(t, port)}
    uncompared = {tensor: op for tensor, op in producers.items() if tensor not in tensors}
    reshapes = [op for t, op in producers.items() if t in tensors and op.is_builtin("RESHAPE")]
    reshaped = {op.operand(0): op for op in reshapes}
    together = uncompared | {t: producers[t] for t in reshaped if t in producers}
    places = []
    for tensor, op in producers.items():
        if tensor in tensors:
            ops = _find_producers(op, uncompared, {})
            called = tuple(inner for each in ops for inner in _list_called(each, graphs))
            others = _find_producers(op, together, reshaped)
            place = (tensor, indices[tensor], ports[tensor.name], op)
            places.append(TensorPlace(*place, ops, others, called))
    return places


def _list_called(op: Op, graphs: Sequence[Graph]) -> Iterator[Op]:
    """Yield the operators of the sub-graph that an operator calls, without calls."""
    if graphs and op.code in CALLS:
        for inner in graphs[int(getattr(op.options, CALLS[op.code]))].ops:
            yield from (inner,) if inner.code not in CALLS else _list_called(inner, graphs)


def _find_producers(
    op: Op, uncompared: Mapping[Tensor, Op], reshaped: Mapping[Tensor, Op]
) -> tuple[Op, ...]:
    """Return an operator and, transitively, the operators that compute its uncompared inputs.

    An input that another operator of `reshaped` reads counts as compared.
    """
    producers = [op]
    for producer in producers:  # the loop appends to the list
        before = dict.fromkeys(
            uncompared[t]
            for t in producer.present
            if t in uncompared and reshaped.get(t, producer) is producer
        )
        producers += [op_before for op_before in before if op_before not in producers]
    return tuple(producers)


def _is_comparable(tensor: Tensor, port: Port) -> bool:
    types = {tensor.dtype, port.dtype}
    numbers = types.isdisjoint(_NO_NUMBERS) and all(t.bits >= _BYTE for t in types)
    return numbers and tensor.elements == port.tensor.elements


class InnerTensors:
    """The tensors inside an ONNX model, computed and compared sample by sample.

    With `alone`, each operator runs on LiteRT's own inputs, so that differences do not accumulate.
    """

    def __init__(
        self,
        skeleton: Skeleton,
        places: Sequence[TensorPlace],
        *,
        alone: bool,
        most: int = MOST_BYTES,
        optimize: bool = True,
    ) -> None:
        self.alone = alone
        self.places = tuple(places)
        # One value stores several tensors if a TRANSPOSE or RESHAPE between them moves no
        # data.
        self._places: dict[str, list[TensorPlace]] = {}
        for place in places:
            self._places.setdefault(place.port.name, []).append(place)
        self._pieces = [
            (
                segment._replace(model=b""),
                make_session(segment.model, arena=False, optimize=optimize),
            )
            for segment in cut_segments(skeleton, list(self._places), alone=alone, most=most)
        ]

    def compare_tensors(
        self,
        interpreter: Any,
        feeds: Mapping[str, Array],
        limits: Limits,
        run_others: Callable[[TensorPlace], Iterable[tuple[str, Array]]],
    ) -> Iterator[TensorComparison]:
        """Yield the comparison of each tensor of LiteRT's last run.

        `feeds` are the inputs of the ONNX model. `limits` are the limits of a network; an operator
        that runs alone has its own limits. If it exceeds them, `run_others` yields the results of
        LiteRT's other kernels on the same inputs, and the nearest result counts.
        """
        for place, onnx in self._run_segments(interpreter, feeds):
            litert = read_inner_tensor(interpreter, place.litert)
            if litert is None:
                continue
            found = compare_tensor(place, litert, onnx, limits, alone=self.alone)
            for kernels, other in (
                run_others(place) if self.alone and not found.difference.ok else ()
            ):
                compared = compare_tensor(place, other, onnx, limits, alone=True)
                found = found.select_nearer(compared, kernels)
                if found.difference.ok:
                    break
            yield found

    def _run_segments(
        self, interpreter: Any, feeds: Mapping[str, Array]
    ) -> Iterator[tuple[TensorPlace, Array]]:
        """Yield the values of the ONNX model; only a few are in memory at a time."""
        live = dict(feeds)
        for name in feeds:
            for place in self._places.get(name, ()):
                yield place, feeds[name]
        for i, (segment, session) in enumerate(self._pieces):
            values = {
                name: live[name]
                if name in live  # an earlier piece computes the value
                else self._read_litert_as_stored(interpreter, self._places[name][0])
                for name in segment.feeds
            }
            states = (initializer.name for initializer in session.get_overridable_initializers())
            values |= {name: feeds[name] for name in states if name in feeds}
            outputs = run_onnx(session, values, segment.fetches)
            results = dict(zip(segment.fetches, outputs, strict=True))
            for output, name in segment.tensors:
                first, *others = self._places[name]
                yield first, results[output]
                compared = (
                    self._read_litert_as_stored(interpreter, first)
                    if self.alone and others
                    else results[output]
                )
                for place in others:
                    yield place, compared
            later = {name for rest, _ in self._pieces[i + 1 :] for name in rest.feeds}
            live = {n: a for n, a in (*live.items(), *results.items()) if n in later}

    def _read_litert_as_stored(self, interpreter: Any, place: TensorPlace) -> Array:
        """Return LiteRT's tensor as the ONNX model stores it, zeros if LiteRT has not kept it."""
        array = read_inner_tensor(interpreter, place.litert)
        if array is None:
            array = np.zeros(place.tensor.shape, place.tensor.dtype.numpy)
        return as_stored(place, array)


def compare_tensor(
    place: TensorPlace, litert: Array, onnx: Array, limits: Limits, *, alone: bool = False
) -> TensorComparison:
    """Compare a tensor of LiteRT with the value of the ONNX model that stores it."""
    tensor, port = place.tensor, place.port
    onnx = _to_tflite_storage(place, onnx)
    rescaled = _find_other_scale(place)
    if rescaled is not None:
        onnx = decode_constant(onnx, rescaled)
    if onnx.size == litert.size and tensor.shape != port.tensor.shape:
        onnx = onnx.reshape(litert.shape)  # the file has no shape, or another shape
    litert, step = _to_onnx_type(place, litert)
    zero = 0 if tensor.quantization is None else int(tensor.quantization.zero_point[0])
    limits = _widen_limits(place, limits, step, alone=alone)
    result = compare(tensor.name, litert, onnx, limits, zero)
    counts: tuple[int, ...] = ()
    if not result.reason and (step or (litert.dtype.name in QUANTIZED and tensor.quantization)):
        counts = _count_steps(litert, onnx, step)
    joined = tuple(f"{op.code} (operator {op.index})" for op in place.ops[1:])
    return TensorComparison(
        result, place.op.code, place.op.index, port.name, tensor.shape, port.order, counts, joined
    )


def _widen_limits(place: TensorPlace, limits: Limits, step: float, *, alone: bool) -> Limits:
    """Return the limits of a tensor in a network, or of an operator on LiteRT's own inputs."""
    coarse = max(step, _COARSE if place.op.code in _OF_UNIT_RANGE else 0.0)
    if alone:
        own = tuple(op for op in place.ops if not place.called or op.code not in CALLS)
        steps = sum(find_operator(op).allowed_steps for op in (*own, *place.called))
        hybrid = place.tensor.dtype.is_float and any(map(_has_weights, place.ops))
        part = max(limits.part, _HYBRID_PART) if hybrid else limits.part
        return Limits(part, limits.decibels_alone, max(step * steps, coarse), steps)
    decibels = limits.decibels
    if place.port.dtype.is_float and _has_weights(place.op) and math.isfinite(decibels):
        decibels = min(decibels, _HYBRID)
    return limits._replace(decibels=decibels, step=coarse)


def _has_weights(op: Op) -> bool:
    """Return whether an operator has quantized weights: with float inputs its kernel is hybrid."""
    return any(t is not None and t.data is not None and is_quantized(t) for t in op.inputs)


def _count_steps(litert: Array, onnx: Array, step: float) -> tuple[int, ...]:
    """Return how many elements are 0, 1, 2... steps apart."""
    if step:
        with np.errstate(all="ignore"):
            steps_apart = np.fmin(np.abs(litert - onnx) / step, MOST_STEPS)
        steps_apart = np.rint(steps_apart).astype(np.uint8)
    else:
        steps_apart = np.minimum(subtract_integers(litert, onnx), MOST_STEPS)
    return tuple(map(int, np.bincount(steps_apart.reshape(-1))))


def _to_onnx_type(place: TensorPlace, array: Array) -> tuple[Array, float]:
    """Return LiteRT's array in the element type of the ONNX model, and the size of a step in it.

    Integers become real numbers if the ONNX model has no integers, or integers in another scale.
    Otherwise the size is 0.
    """
    own, other = place.tensor.quantization, _find_other_scale(place)
    to_real = other is not None or place.port.dtype.is_float
    if to_real and own is not None and array.dtype.kind in "iu":
        steps = [scales.scale.max() for scales in (own, other) if scales is not None]
        return decode_constant(array, own), float(max(steps))
    return array, 0.0 if other is None else float(other.scale.max())


def _find_other_scale(place: TensorPlace) -> Quantization | None:
    """Return the scale of an ONNX value's integers if it is not the scale of the file's tensor.

    Symmetric integers in the file's scale are the file's integers, whose zero point is part of
    biases. Symmetric integers that were rounded anew always have a larger scale.
    """
    tensor, other, dtype = place.tensor, place.port.tensor, place.port.dtype
    if not is_quantized(other) or not dtype.is_integer:
        return None
    scales, stored = (
        move_zero_point(Storage(item.dtype, item.quantization), dtype).quantization
        for item in (tensor, other)
    )
    if scales and stored and scales.scale.size == 1 and scales.scale == stored.scale:
        stored = scales
    is_kept = tensor.dtype is dtype or (tensor.dtype, dtype) == (DType.INT8, DType.UINT8)
    return None if is_kept and same_quantization(scales, stored) else stored


def _to_tflite_storage(place: TensorPlace, array: Array) -> Array:
    """Return a value of the ONNX model in TFLite's layout and integer type."""
    order = place.port.order
    if array.ndim == len(order):
        array = array.transpose(np.argsort(order))
    if array.dtype == np.float16 and place.tensor.dtype is not DType.FLOAT16:
        array = array.astype(np.float32)  # float16 tensors are compared as float32
    return _flip_sign_bit(place, array, np.dtype(np.uint8))


def as_stored(place: TensorPlace, array: Array) -> Array:
    """Return a tensor of LiteRT as the ONNX model stores it."""
    if array.size == place.port.tensor.elements:  # otherwise the shape depends on data
        array = array.reshape(place.port.tensor.shape)
    array, _ = _to_onnx_type(place, array)
    rescaled = _find_other_scale(place)
    if rescaled is not None:
        array = encode_numbers(array, rescaled, place.port.dtype)
    if place.port.dtype is DType.FLOAT16:
        array = array.astype(np.float16)
    array = _flip_sign_bit(place, array, np.dtype(np.int8))
    # `ascontiguousarray` would give a scalar an axis.
    return np.asarray(array.transpose(place.port.order), order="C")


def _flip_sign_bit(place: TensorPlace, array: Array, source: np.dtype[Any]) -> Array:
    """Convert between int8 and uint8 if the ONNX model stores int8 as uint8, 128 higher."""
    is_same = (place.tensor.dtype, place.port.dtype) == (DType.INT8, DType.UINT8)
    if not is_same or array.dtype != source:
        return array
    other = np.int8 if source == np.uint8 else np.uint8
    return np.asarray((array.view(np.uint8) ^ _SIGN).view(other))
