"""Nodes for opsets before 13, in the forms that these opsets have.

Operators emit the forms of opset 13 and newer. Most differences are inputs that were attributes
(`_INPUTS`), whose types are in ONNX's schemas; `_CHANGES` lists other differences. NeedsOpset is
raised for a node without a form in the older opset. The check of all nodes (`validity.check`) finds
operators and element types that an opset lacks.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from onnx import defs, helper

from tflite2onnx.builder.builder import find_bodies
from tflite2onnx.builder.nodes import NeedsOpset, Node, Nodes, Types, Value, require_onnx_type
from tflite2onnx.builder.opsets import NEGATIVE_AXES, ORDINARY_OPSET
from tflite2onnx.tensor import Array, DType

# The names of attributes that later became inputs 1, 2, ..., and the first opset that has these
# inputs.
_INPUTS: dict[str, tuple[int, tuple[str, ...]]] = {
    "Clip": (11, ("min", "max")),
    "Pad": (11, ("pads", "value")),
    "ReduceSum": (13, ("axes",)),
    "Slice": (10, ("starts", "ends", "axes")),
    "Split": (13, ("split",)),
    "Squeeze": (13, ("axes",)),
    "TopK": (10, ("k",)),
    "Unsqueeze": (13, ("axes",)),
}
# The comparisons that replace Max and Min of two integers, and the first opset that has integer Max
# and Min.
_EXTREMES, _INTEGER_EXTREMES = {"Max": "Greater", "Min": "Less"}, 12
_SCALED = ("QuantizeLinear", "DequantizeLinear")
_STEPS = 4  # the number of inputs of Slice without `steps`
_WIDE_CLIP = 12  # the first opset for which runtimes' Clip takes other types than float32
_KIND = defs.OpSchema.AttrType
_CONVERSIONS: Mapping[Any, Callable[[Any], Any]] = {
    _KIND.FLOAT: lambda data: float(data.item()),
    _KIND.INT: lambda data: int(data.item()),
    _KIND.INTS: lambda data: [int(number) for number in data.reshape(-1)],
}


def lower_nodes(nodes: Sequence[Node], opset: int, types: Types) -> tuple[Node, ...]:
    """Return nodes in the forms of an opset; NeedsOpset if only newer opsets have a form.

    `types` has the shapes of values, if they are known.
    """
    if opset >= ORDINARY_OPSET:
        return tuple(nodes)
    return tuple(new for node in nodes for new in _lower_node(node, opset, types))


def _lower_node(node: Node, opset: int, types: Types) -> Iterator[Node]:
    if node.domain:
        yield node
        return
    bodies = {
        key: body._replace(nodes=lower_nodes(body.nodes, opset, types))
        for key, body in find_bodies(node).items()
    }
    node = node._replace(attributes={**node.attributes, **bodies})
    spell_out = _find_spelling(node, opset, types)
    if spell_out:
        g = Nodes(ORDINARY_OPSET)
        spell_out(g, node, types)
        *before, last = g.nodes
        for spelled in (*before, last._replace(outputs=node.outputs)):
            yield from _lower_node(spelled, opset, types)
        return
    first, change = _CHANGES.get(node.op_type, (0, None))
    older = _use_older_form(change(node) if change and opset < first else node, opset)
    yield _count_axes_from_start(older, types) if opset < NEGATIVE_AXES else older


def _find_spelling(
    node: Node, opset: int, types: Types
) -> Callable[[Nodes, Node, Types], object] | None:
    """Return a function that adds other nodes in place of a node that an opset lacks."""
    kind = node.op_type
    if kind == "Clip" and opset < _WIDE_CLIP:
        others = (v for v in node.inputs[1:] if v and v.dtype is not DType.FLOAT32)
        return _spell_out_clip if any(others) else None
    if kind in ("Softmax", "LogSoftmax") and not _is_last_axis(node, types):
        return _spell_out_softmax
    if kind in _EXTREMES and opset < _INTEGER_EXTREMES and _list_integers(node, types):
        return _spell_out_extreme
    return _spell_out_scales if kind in _SCALED and "axis" in node.attributes else None


def _spell_out_clip(g: Nodes, node: Node, _: Types) -> None:
    """Add Max and Min: runtimes' Clip of older opsets takes float32 only."""
    x, *bounds = node.inputs
    for kind, bound in zip(("Max", "Min"), bounds, strict=False):
        x = x if bound is None else g.node(kind, x, bound)


def _list_integers(node: Node, types: Types) -> list[DType]:
    types_of_inputs = [_find_dtype(value, types) for value in node.inputs]
    return [dtype for dtype in types_of_inputs if dtype is not None and dtype.is_integer]


def _find_dtype(value: Value | None, types: Types) -> DType | None:
    entry = types.get(value) if value is not None else None
    return entry[0] if entry is not None else getattr(value, "dtype", None)


def _spell_out_extreme(g: Nodes, node: Node, types: Types) -> None:
    """Add a Where in place of Max or Min of two integers, which opsets before 12 lack.

    Runtimes lack kernels of comparisons and of Where for 8 and 16 bits.
    """
    dtype = _list_integers(node, types)[0]
    is_narrow = dtype not in (DType.INT32, DType.INT64)
    a, b = (_cast(g, x, DType.INT32) if is_narrow else x for x in node.inputs)
    result = g.Where(g.node(_EXTREMES[node.op_type], a, b), a, b)
    if is_narrow:
        _cast(g, result, dtype)


def _cast(g: Nodes, x: Value | None, dtype: DType) -> Value:
    return g.Cast(x, to=require_onnx_type(dtype))


def _spell_out_scales(g: Nodes, node: Node, types: Types) -> None:
    """Add the nodes of QuantizeLinear or DequantizeLinear with a scale for each index of an axis.

    NeedsOpset: the shape, or the type of the integers, is not known.
    """
    x, scale, *points = node.inputs
    rank, zero = _find_rank(node, types), points[0] if points else None
    dequantizes = node.op_type == "DequantizeLinear"
    to = _find_dtype(zero, types) or _find_dtype(node.outputs[0], types)
    if rank is None or (to is None and not dequantizes):
        raise NeedsOpset(ORDINARY_OPSET, f"{node.op_type} with axis")
    axis = node.attributes["axis"] % rank
    others = [i for i in range(rank) if i != axis]

    def cast_to_axis(value: Value | None) -> Value:
        cast = _cast(g, value, DType.FLOAT32)
        return g.Unsqueeze(cast, g.ints(others)) if others else cast

    scales, zeros = cast_to_axis(scale), None if zero is None else cast_to_axis(zero)
    if to is None or dequantizes:
        floats = _cast(g, x, DType.FLOAT32)
        g.Mul(floats if zeros is None else g.Sub(floats, zeros), scales)
        return
    whole = g.Round(g.Div(x, scales))
    bounds = np.iinfo(np.dtype(to.label))
    limits = (g.scalar(i, DType.FLOAT32) for i in (bounds.min, bounds.max))
    _cast(g, g.Clip(whole if zeros is None else g.Add(whole, zeros), *limits), to)


def _use_older_form(node: Node, opset: int) -> Node:
    """Return a node with attributes in place of inputs, and without attributes of newer opsets.

    NeedsOpset: an input is computed, or only a newer opset has it, or has an attribute.
    """
    first, names = _INPUTS.get(node.op_type, (0, ()))
    attributes, inputs = dict(node.attributes), node.inputs
    schema = _find_schema(node.op_type, opset)
    if schema is None:
        raise NeedsOpset(_find_newer(node.op_type, opset, len(inputs))[0], node.op_type)
    if opset < first:
        for name, value in zip(names, inputs[1:], strict=False):
            if value is not None and value.data is None:
                raise NeedsOpset(first, f"{node.op_type} with computed {name}")
            if value is not None and value.data is not None and not value.data.size:
                raise NeedsOpset(first, f"{node.op_type} with empty {name}")
            if value is not None and _loses_digits(schema.attributes[name].type, value.data):
                raise NeedsOpset(first, f"{node.op_type} with a {name} of float64")
            if value is not None:
                attributes[name] = _CONVERSIONS[schema.attributes[name].type](value.data)
        inputs = (inputs[0], *inputs[1 + len(names) :])
    if len(inputs) > schema.max_input:
        newer, _ = _find_newer(node.op_type, opset, len(inputs))
        raise NeedsOpset(newer, f"{node.op_type} with {len(inputs)} inputs")
    for name in sorted({*attributes} - {*schema.attributes}):
        _check_default(node.op_type, name, attributes.pop(name), opset)
    return node._replace(inputs=inputs, attributes=attributes)


def _loses_digits(kind: object, data: Array | None) -> bool:
    """Return whether an attribute, which is float32, cannot hold a number."""
    if kind != _KIND.FLOAT or data is None:
        return False
    return not np.array_equal(data.astype(np.float32), data, equal_nan=True)


def _check_default(op_type: str, name: str, value: object, opset: int) -> None:
    """Raise NeedsOpset unless an attribute of newer opsets has its default value."""
    newer, schema = _find_newer(op_type, opset, attribute=name)
    default = schema.attributes[name].default_value
    default_value = helper.get_attribute_value(default) if default.type else None
    if value != (default_value.decode() if isinstance(default_value, bytes) else default_value):
        raise NeedsOpset(newer, f"{op_type} with {name}")


def _count_axes_from_start(node: Node, types: Types) -> Node:
    """Return a node without negative axes, which need opset 11; NeedsOpset without a known rank."""
    axis, axes = node.attributes.get("axis", 0), node.attributes.get("axes", ())
    if min((axis, *axes)) >= 0 or node.op_type == "OneHot":
        return node
    rank = _find_rank(node, types)
    if rank is None:
        raise NeedsOpset(NEGATIVE_AXES, f"{node.op_type} over a negative axis")
    rank += len(axes) if node.op_type == "Unsqueeze" else 0
    added: dict[str, Any] = {"axes": [axis_number % rank for axis_number in axes]} if axes else {}
    added |= {"axis": axis % rank} if axis < 0 else {}
    return node._replace(attributes={**node.attributes, **added})


def _find_rank(node: Node, types: Types) -> int | None:
    """Return the number of axes of the first input, None if it is not known."""
    first = node.inputs[0]
    if first is not None and first.data is not None:
        return first.data.ndim
    entry = types.get(first) if first is not None else None
    return None if entry is None else len(entry[1])


def _is_last_axis(node: Node, types: Types) -> bool:
    """Return whether a softmax is along the last axis; before opset 13 it includes later axes."""
    axis = node.attributes.get("axis", -1)
    shapes = [types[v][1] for v in (*node.present, *node.outputs) if v in types]
    return axis == -1 or any(axis == len(shape) - 1 for shape in shapes)


def _spell_out_softmax(g: Nodes, node: Node, _: Types) -> None:
    """Add the nodes of a softmax over another axis than the last."""
    (x,), axes = node.inputs, {"axes": [node.attributes["axis"]], "keepdims": 1}
    shifted = g.Sub(x, g.ReduceMax(x, **axes))
    power = g.Exp(shifted)
    total = g.ReduceSum(power, **axes)
    if node.op_type == "Softmax":
        g.Div(power, total)
    else:
        g.Sub(shifted, g.Log(total))


def _check_indices(node: Node) -> Node:
    indices = node.inputs[1]
    if indices is not None and indices.data is not None and (indices.data < 0).any():
        raise NeedsOpset(NEGATIVE_AXES, "Gather of negative indices")
    return node


def _add_zero_bias(node: Node) -> Node:
    zero = Value(np.zeros(1, np.float32), DType.FLOAT32)
    return node if node.inputs[2:] else node._replace(inputs=(*node.inputs, zero))


def _drop_unit_dilations(node: Node) -> Node:
    is_plain = set(node.attributes.get("dilations", ())) <= {1}
    return _without_attribute(node, "dilations") if is_plain else node


def _drop_empty_rule(node: Node) -> Node:
    """Return ReduceSum without `noop_with_empty_axes`, which constant axes do not need."""
    return _without_attribute(node, "noop_with_empty_axes")


def _fill_empty_inputs(node: Node) -> Node:
    """Return Resize with empty tensors in place of absent inputs."""
    empty = Value(np.empty(0, np.float32), DType.FLOAT32)
    inputs = (empty if value is None else value for value in node.inputs)
    return node._replace(inputs=tuple(inputs))


def _drop_unit_steps(node: Node) -> Node:
    steps = node.inputs[_STEPS] if node.inputs[_STEPS:] else None
    if steps is None:
        return node
    if steps.data is None or (steps.data < 0).any():
        raise NeedsOpset(NEGATIVE_AXES, "Slice with negative or computed steps")
    return node if (steps.data != 1).any() else node._replace(inputs=node.inputs[:_STEPS])


def _without_attribute(node: Node, name: str) -> Node:
    return node._replace(attributes={k: v for k, v in node.attributes.items() if k != name})


# Other changes, by node: the first opset that has a form, and a function that returns an equal node
# of an older form or raises NeedsOpset.
_CHANGES: Mapping[str, tuple[int, Callable[[Node], Node]]] = {
    "Gather": (NEGATIVE_AXES, _check_indices),
    "Gemm": (11, _add_zero_bias),
    "MaxPool": (10, _drop_unit_dilations),
    "ReduceSum": (13, _drop_empty_rule),
    "Resize": (13, _fill_empty_inputs),
    "Slice": (NEGATIVE_AXES, _drop_unit_steps),
}


@lru_cache(maxsize=1024)
def _find_schema(op_type: str, opset: int) -> defs.OpSchema | None:
    try:
        return defs.get_schema(op_type, opset, "")
    except defs.SchemaError:
        return None


def _find_newer(
    op_type: str, opset: int, inputs: int = 0, attribute: str = ""
) -> tuple[int, defs.OpSchema]:
    """Return the first opset after `opset` that has a form of an operator, and its schema.

    If no attribute is given, a form with this number of inputs is searched.
    """
    versions = range(opset + 1, defs.onnx_opset_version() + 1)
    schemas = ((version, _find_schema(op_type, version)) for version in versions)
    return next(
        (version, schema)
        for version, schema in schemas
        if schema is not None
        and schema.max_input >= inputs
        and (not attribute or attribute in schema.attributes)
    )
