"""The third stage of a conversion: from the operators of the file to those that are emitted.

`name_dynamic_axes` has named the dynamic sizes. `list_normalising_passes` verify and normalise the
operators, and `QUANTIZED_PASSES` and `FASTEST_PASSES` choose the forms that are fastest in ONNX
Runtime, if the options ask for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tflite2onnx.emit import make_sites
from tflite2onnx.errors import FixedSizeError, UnsupportedOperators
from tflite2onnx.graph import Graph, Model, Op
from tflite2onnx.interface import read_layouts
from tflite2onnx.layout import Order
from tflite2onnx.op import find_operator
from tflite2onnx.op.base import Operator
from tflite2onnx.options import ConversionOptions
from tflite2onnx.passes import (
    FASTEST_PASSES,
    MODEL_PASSES,
    QUANTIZED_PASSES,
    apply_passes,
    apply_pattern,
    list_entry_point_passes,
    list_normalising_passes,
)
from tflite2onnx.passes.dynamic_shapes import OpenGraph, check_dynamic_axes, name_dynamic_axes
from tflite2onnx.passes.flex import explain_untranslated
from tflite2onnx.passes.inline_subgraphs import inline_subgraphs
from tflite2onnx.passes.shape_walk import OperatorOf
from tflite2onnx.tensor import Tensor

_AXES = 13  # the first opset whose QuantizeLinear has an axis


def open_graph(model: Model, index: int, operator_of: OperatorOf) -> Graph:
    """Return the graph of an entry point with all calls inlined, and the shapes of all tensors."""
    whole = apply_passes(MODEL_PASSES, model)
    graph = inline_subgraphs(whole, index)
    return apply_passes(list_entry_point_passes(whole, index, operator_of), graph)


def check_sizes(graph: Graph, words: Mapping[str, str], operator_of: OperatorOf) -> None:
    """Raise ConversionError if sizes of a graph cannot be dynamic; `words` are their names."""
    named = name_dynamic_axes(graph, operator_of, (), words)
    normal = apply_passes(list_normalising_passes(operator_of), named.graph)
    operators = [*map(operator_of, normal.walk_ops())]
    make_sites(operators)
    check_dynamic_axes(operators, named.axes)


def keep_file_sizes(graph: Graph, operator_of: OperatorOf) -> OpenGraph:
    """Return a graph in which only data-dependent sizes are dynamic."""
    try:
        return name_dynamic_axes(graph, operator_of, None)
    except FixedSizeError as error:
        raise UnsupportedOperators([error]) from error


class Converters(dict[Op, Operator]):
    """A function from an operator of the file to its converter, one for each operator.

    Converters cache what they compute. Most operators are the same object in all stages.
    """

    __call__ = dict.__getitem__

    def __init__(self, options: ConversionOptions) -> None:
        super().__init__()
        self._allow_custom = options.allow_custom

    def __missing__(self, op: Op) -> Operator:
        operator = find_operator(op, keep=self._allow_custom, why=explain_untranslated(op))
        return self.setdefault(op, operator)

    def keep_only(self, ops: Iterable[Op]) -> None:
        """Forget all other operators: those of earlier stages take much memory."""
        kept = {op: self[op] for op in ops}
        self.clear()
        self.update(kept)


def normalise(
    graph: Graph, options: ConversionOptions, operator_of: OperatorOf
) -> tuple[Graph, dict[Tensor, Order], dict[Tensor, str]]:
    """Return a graph in the forms to emit, and the requested orders and letters of its tensors."""
    requested = read_layouts(options.layouts, graph)
    normal = apply_passes(list_normalising_passes(operator_of), graph)
    # Constant folding replaces outputs by constants, which are other tensors.
    replaced = dict(zip(graph.outputs, normal.outputs, strict=True))
    user_orders = {replaced.get(tensor, tensor): order for tensor, order in requested.items()}
    letters = {replaced.get(t, t): options.layouts[t.name][0] for t in requested}
    if options.forms == "fastest":
        if quantizes_data(options) and has_axes(options):
            normal = apply_passes(QUANTIZED_PASSES, normal)
        normal = _choose_fastest_forms(normal, user_orders, options)
    return normal, user_orders, letters


def _choose_fastest_forms(
    graph: Graph, user_orders: Mapping[Tensor, Order], options: ConversionOptions
) -> Graph:
    """Return the graph in the fastest forms; unchanged if these lack a tensor of `user_orders`."""
    fastest = apply_passes(FASTEST_PASSES, graph)
    if options.caches == "shared":
        from tflite2onnx.passes.patterns.attention.read_caches import (  # noqa: PLC0415 - rare
            read_caches,
        )

        fastest = read_caches(fastest, user_orders)
    attend = apply_pattern("DYNAMIC_UPDATE_SLICE", "patterns.attention.attend_tokens")
    fastest = attend(fastest)
    results = [{t for op in candidate.ops for t in op.outputs} for candidate in (graph, fastest)]
    lost = results[0] - results[1]
    return graph if any(tensor in lost for tensor in user_orders) else fastest


def quantizes_data(options: ConversionOptions) -> bool:
    """Return whether float data beside integer weights are quantized at run time."""
    return options.quantization == "qdq" and options.dynamic_range == "quantized"


def has_axes(options: ConversionOptions) -> bool:
    """Return whether an axis may have several scales, which needs opset 13."""
    return options.opset is None or options.opset >= _AXES
