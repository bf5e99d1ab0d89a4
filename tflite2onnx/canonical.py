"""The third stage of a conversion: from the operators of the file to canonical ones.

`name_dynamic_axes` has named the dynamic sizes. `list_canonical_passes` verify the operators, and
make them canonical.
"""

from collections.abc import Iterable, Mapping

from tflite2onnx.errors import (
    DeclaredShapeError,
    FixedSizeError,
    OperatorError,
    UnsupportedOperators,
    as_operator_error,
)
from tflite2onnx.graph import Graph, Model, Op
from tflite2onnx.interface import read_layouts
from tflite2onnx.layout import Order
from tflite2onnx.op import OPERATORS, find_operator
from tflite2onnx.op.base import Operator
from tflite2onnx.op.unsupported import Unsupported, keep_as_node
from tflite2onnx.options import ConversionOptions
from tflite2onnx.passes import (
    MODEL_PASSES,
    apply_if_present,
    apply_passes,
    explain_unchanged,
    list_canonical_passes,
    list_entry_point_passes,
)
from tflite2onnx.passes.dynamic_shapes import OpenGraph, check_dynamic_axes, name_dynamic_axes
from tflite2onnx.passes.inline_subgraphs import inline_subgraphs
from tflite2onnx.passes.shape_walk import OperatorOf
from tflite2onnx.planning import make_sites
from tflite2onnx.targets.driver import find_operators
from tflite2onnx.tensor import Tensor
from tflite2onnx.utils.dimension import has_dimensions


def open_graph(model: Model, index: int, operator_of: OperatorOf) -> Graph:
    """Return the graph of an entry point with all calls inlined, and the shapes of all tensors."""
    whole = apply_passes(MODEL_PASSES, model)
    graph = inline_subgraphs(whole, index)
    return apply_passes(list_entry_point_passes(whole, index, operator_of), graph)


def check_sizes(graph: Graph, words: Mapping[str, str], operator_of: OperatorOf) -> None:
    """Raise ConversionError if sizes of a graph cannot be dynamic; `words` are their names."""
    named = name_dynamic_axes(graph, operator_of, (), words)
    normal = apply_passes(list_canonical_passes(operator_of), named.graph)
    operators = [*map(operator_of, normal.walk_ops())]
    make_sites(operators, {})
    check_dynamic_axes(operators, named.axes)


def keep_file_sizes(graph: Graph, operator_of: OperatorOf) -> OpenGraph:
    """Return a graph in which only data-dependent sizes are dynamic."""
    try:
        return name_dynamic_axes(graph, operator_of, None)
    except FixedSizeError as error:
        raise UnsupportedOperators([error]) from error


class OperatorCache(dict[Op, Operator]):
    """A function from an operator of the file to the instance of its class.

    Operators cache what they compute. Most operators are the same object in all stages.
    """

    __call__ = dict.__getitem__

    def __init__(self, options: ConversionOptions) -> None:
        super().__init__()
        self._allow_custom, self._classes = options.allow_custom, find_operators(options)

    def __missing__(self, op: Op) -> Operator:
        operator = find_operator(op, explain_unchanged)
        cls = self._classes.get(op.code)
        # A class that a user has registered comes first. Only forms make operators without another
        # class, and no custom ones.
        is_made = not op.custom and op.code not in OPERATORS
        if cls is not None and (is_made or issubclass(cls, type(operator))):
            operator = cls(op)
        return self.setdefault(op, operator)

    def read_op(self, op: Op) -> Operator:
        """Return an operator that is not verified: with `allow_custom` KEPT if it is refused."""
        is_kept = self._allow_custom and _is_refused(self[op])
        return self[keep_as_node(op)] if is_kept else self[op]

    def keep_only(self, ops: Iterable[Op]) -> None:
        """Forget all other operators: those of earlier stages take much memory."""
        kept = {op: self[op] for op in ops}
        self.clear()
        self.update(kept)


def _is_refused(operator: Operator) -> bool:
    """Return whether an operator has no class, or is refused whatever the sizes of its operands.

    A node of another domain cannot have sub-graphs. Inputs get fixed sizes if the model needs them,
    and outputs the shapes that follow, so that an operator may become valid.
    """
    op, has_no_class = operator.op, isinstance(operator, Unsupported)
    sizes = (t.is_unranked or t.dynamic_axes or has_dimensions(t.shape) for t in op.tensors)
    if has_no_class or op.graphs or any(sizes):
        return has_no_class
    try:
        with as_operator_error():
            operator.verify()
    except OperatorError as error:
        return not isinstance(error, DeclaredShapeError)
    return False


def make_canonical(
    graph: Graph, options: ConversionOptions, operator_of: OperatorOf
) -> tuple[Graph, dict[Tensor, Order], dict[Tensor, str]]:
    """Return the canonical graph, and the requested orders and letters of its tensors."""
    requested = read_layouts(options.layouts, graph)
    normal = apply_passes(list_canonical_passes(operator_of), graph)
    # Constant folding replaces outputs by constants, which are other tensors.
    replaced = dict(zip(graph.outputs, normal.outputs, strict=True))
    user_orders = {replaced.get(tensor, tensor): order for tensor, order in requested.items()}
    letters = {replaced.get(t, t): options.layouts[t.name][0] for t in requested}
    if options.quantizes_data:
        normal = _round_data(normal)
    return normal, user_orders, letters


_round_data = apply_if_present(
    "CONV_2D DEPTHWISE_CONV_2D TRANSPOSE_CONV", "stored_numbers.round_data"
)
