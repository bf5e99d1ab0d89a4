"""Weights that a model reads as int8 or as uint8, depending on the processor.

Where a processor adds four products of bytes at once (VNNI, AMX, ARM's dot product), products of
uint8 by int8 take down to a quarter of the time of products of uint8 by uint8. Other x86-64
processors add two products in 16 bits, which saturates. The model tests the processor: it compares
a product of constants that may saturate with its exact value. The result is the condition of each
If. The outputs of an If are weights, dequantized as int8 or as uint8:

    MatMulInteger -> Equal -> If: DequantizeLinear(int8), ...
                              or DequantizeLinear(BitwiseXor(Cast(int8), 128)), ...

A runtime computes the condition when it loads the model, with the kernels that it runs later. It
replaces the If by the nodes of one branch, folds Cast and BitwiseXor, and then fuses each
DequantizeLinear with the operator that reads it. With its optimizations disabled the If runs, and
gives the same real numbers. docs/integer-kernels.md names the functions that do so, and says why

- bytes are made by Cast and BitwiseXor, which add 128 modulo 256 without floats;
- each product has its own DequantizeLinear, and its own int8 constant
  (`Nodes.make_separate_constant`): each product but the first reads a copy, which a Slice of all
  rows makes at load. The ends of the Slices differ, so that they are not merged;
- an If has a megabyte of weights at most, or one weight. A nested graph has its own If, with the
  same condition.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tflite2onnx.builder.builder import (
    AdaptiveWeight,
    Body,
    Builder,
    find_bodies,
    find_readers,
    walk_nodes,
)
from tflite2onnx.builder.nodes import Node, Value, require_onnx_type
from tflite2onnx.builder.opsets import find_first_opset
from tflite2onnx.builder.store_once import identify_assembly, replace_inputs
from tflite2onnx.layout import make_identity
from tflite2onnx.quantization.storage import AS_NUMBERS, Storage, move_zero_point
from tflite2onnx.tensor import DType

# Runtimes fuse these operators with weights that have no zero point, and add one themselves.
_NEED_NO_ZERO_POINT = {"Conv", "ConvTranspose", "MatMul"}
_MOST_BYTES = 1 << 20  # the largest number of bytes of the weights of one If
_DATA = np.full(16, 255, np.uint8)
# With a zero point the product has the kernel of all other products, the one for matrices; without
# one it may have a kernel for vectors.
_ZERO_POINT = np.array(1, np.uint8)
# Sums of two products by 127 overflow 16 bits, and sums of two products by -128 underflow. The
# errors do not cancel out.
_WEIGHTS = np.repeat(np.array([127, -128], np.int8), (12, 4))
_SIGN_BIT = np.array(128, np.uint8)
_AS_UINT8 = Storage(DType.UINT8, replace(AS_NUMBERS, zero_point=np.array([128], np.int64)))


def add_adaptive_weights(g: Builder, nodes: Sequence[Node], _: Sequence[Value]) -> tuple[Node, ...]:
    """Return nodes that compute the adaptive weights of a graph, then the nodes of the graph.

    Of all graphs of a model the main graph must be the last.
    """
    weights: dict[Value, _ReadWeight] = {}
    if g.adaptive:  # without adaptive weights no node needs a change
        nodes, weights = _separate_readers(g, nodes)
        readers = find_readers(nodes)
        nodes = [_read_in_branches(g, node, weights) for node in nodes]
    for part in _divide(weights):
        needs = [(each, _needs_zero_point(readers[real])) for real, each in part.items()]
        branches = {
            "then_branch": _dequantize(g, "int8_weights", needs, as_uint8=False),
            "else_branch": _dequantize(g, "uint8_weights", needs, as_uint8=True),
        }
        nodes = [Node("If", (g.int8_is_exact,), tuple(part), branches), *nodes]
    if not g.is_nested and (weights or any(g.int8_is_exact in n.inputs for n in walk_nodes(nodes))):
        nodes = [*_compare_products(g), *nodes]
    return tuple(nodes)


class _ReadWeight(NamedTuple):
    """An adaptive weight of one reader; `copy` is the number of earlier readers of its bytes."""

    weight: AdaptiveWeight
    copy: int


def _separate_readers(
    g: Builder, nodes: Sequence[Node]
) -> tuple[list[Node], dict[Value, _ReadWeight]]:
    weights: dict[Value, _ReadWeight] = {}
    counts: Counter[Hashable] = Counter()
    separate = []
    for node in nodes:
        read = {}
        present = (v for n in walk_nodes([node]) for v in n.present if v in g.adaptive)
        for value in dict.fromkeys(present):
            weight = g.adaptive[value]
            entry = g.assemblies.get(id(weight.integers.data))
            key = weight.integers if entry is None else identify_assembly(entry)
            copy = value
            if value in weights:
                copy = read[value] = g.annotate_like(value, Value(), DType.FLOAT32)
            weights[copy] = _ReadWeight(weight, counts[key])
            counts[key] += 1
        separate.append(replace_inputs(node, read) if read else node)
    return separate, weights


def _read_in_branches(g: Builder, node: Node, weights: dict[Value, _ReadWeight]) -> Node:
    """Return a choice by the type of weights, whose branches dequantize what they alone read.

    The DequantizeLinear of a branch that is removed would run.
    """
    if g.int8_is_exact not in node.inputs:
        return node
    bodies = {}
    for name, body in find_bodies(node).items():
        values = dict.fromkeys(v for n in walk_nodes(body.nodes) for v in n.present if v in weights)
        needs = [(weights[value], False) for value in values]
        made = _dequantize(g, name, needs, as_uint8=name == "else_branch")
        read = dict(zip(values, made.outputs, strict=True))
        readers = (replace_inputs(inner, read) for inner in body.nodes)
        bodies[name] = body._replace(nodes=(*made.nodes, *readers)), values
    for value in {value for _, values in bodies.values() for value in values}:
        del weights[value]
    filled = {name: body for name, (body, _) in bodies.items()}
    return node._replace(attributes={**node.attributes, **filled})


def _needs_zero_point(readers: Iterable[Node]) -> bool:
    return not {node.op_type for node in readers} <= _NEED_NO_ZERO_POINT


def _divide(weights: Mapping[Value, _ReadWeight]) -> Iterator[dict[Value, _ReadWeight]]:
    """Yield weights in parts of limited size: both branches of an If are folded at once."""
    part: dict[Value, _ReadWeight] = {}
    size = 0
    for value, read in weights.items():
        data = read.weight.integers.data
        added = 0 if data is None else data.nbytes
        if part and size + added > _MOST_BYTES:
            yield part
            part, size = {}, 0
        part[value] = read
        size += added
    if part:
        yield part


def _dequantize(
    g: Builder, name: str, weights: Iterable[tuple[_ReadWeight, bool]], *, as_uint8: bool
) -> Body:
    """Return a graph that dequantizes int8 weights, converted to uint8 first if `as_uint8`.

    `weights` are pairs of weights and whether their DequantizeLinear needs a zero point.
    """
    inner = g.make_nested()
    inner.types = {}  # ONNX infers these types; they would add 1 % to the file of a small network
    outputs, as_bytes = [], dict[Value, Value]()
    for ((integers, storage, order), copy), zero_point in weights:
        value, target = integers, storage
        if as_uint8:
            if integers not in as_bytes:
                as_bytes[integers] = add_128(inner, integers, len(order))
            value, target = as_bytes[integers], move_zero_point(storage, DType.UINT8)
        elif copy:
            value = _copy(inner, integers, copy)
        outputs.append(inner.dequantize(value, target, order, zero_point=zero_point))
    return Body(name, (), tuple(inner.nodes), tuple(outputs), ())


def _copy(g: Builder, integers: Value, copy: int) -> Value:
    """Return a copy of a constant that is not merged with other copies."""
    end = copy + (1 if integers.data is None else len(integers.data))
    return g.Slice(integers, [0], [end])


def add_128(g: Builder, integers: Value, rank: int) -> Value:
    """Return int8 integers plus 128, as uint8."""
    if g.opset < find_first_opset("BitwiseXor"):
        return g.quantize(g.cast(integers, DType.FLOAT32), _AS_UINT8, make_identity(rank))
    # `cast` would convert a small constant here, and store it a second time.
    as_bytes = g.Cast(integers, to=require_onnx_type(DType.UINT8))
    return g.BitwiseXor(as_bytes, g.constant(_SIGN_BIT))


def _compare_products(g: Builder) -> list[Node]:
    """Return nodes that compute whether products of uint8 by int8 are exact."""
    exact = (_DATA.astype(np.int32) - _ZERO_POINT) @ _WEIGHTS.astype(np.int32)
    data, weights, zero_point, expected = map(g.constant, (_DATA, _WEIGHTS, _ZERO_POINT, exact))
    product = g.annotate(Value(), DType.INT32, ())
    g.annotate(g.int8_is_exact, DType.BOOL, ())
    return [
        Node("MatMulInteger", (data, weights, zero_point), (product,), {}),
        Node("Equal", (product, expected), (g.int8_is_exact,), {}),
    ]
