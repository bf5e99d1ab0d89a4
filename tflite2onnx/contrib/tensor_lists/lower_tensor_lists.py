"""Replace TensorFlow's lists by tensors, before any shape is inferred.

A Keras loop that TFLite's converter leaves to the Flex delegate keeps its results in lists:
TensorListReserve makes a list, SetItem and GetItem write and read it, Stack makes a tensor of it.
The tensors between these operators have the dtype variant, and the file declares no item shape.

1. All items of a list have one shape, so a list becomes a tensor whose first axis counts the items,
   also as a loop variable. Items that have not been set are 0, as in TensorFlow.
2. The dtype, rank and sizes of the items come from the operators on the list.
3. If a size of the items is dynamic, no item has the size before a loop. The shapes of the graph
   are inferred (`dynamic_shapes.infer_dimensions`). If the size is always equal to a size of an
   input, or of a tensor that is computed before the list, the ONNX model reads the size from it.
   Otherwise the size is 0 until an item is set.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tflite2onnx.contrib.tensor_lists.list_operators import (
    COUNTED,
    FORMS,
    MAKERS,
    ListForm,
    ListRewriter,
    Size,
    find_operand,
    grows,
)
from tflite2onnx.operators import DType, Op, OperatorError, Options, Tensor
from tflite2onnx.rewriting import (
    DisjointSets,
    Graph,
    InferredTensors,
    as_operator_error,
    collect_errors,
    has_class,
    infer_dimensions,
)
from tflite2onnx.sizes import has_dimensions, is_known


@dataclass(frozen=True, eq=False)
class _List:
    """A list, which may be several variant tensors.

    Attributes:
        dtype: the dtype of the items.
        sizes: the sizes of an item; None for a size that no operator states.
        item: a tensor that is an item, or items along a first axis; None if there is none.
        single: whether the list has exactly one item at all times.
    """

    dtype: DType
    sizes: tuple[int | None, ...]
    item: Tensor | None
    single: bool

    def find_sizes(self, known: InferredTensors, before: Sequence[Tensor]) -> tuple[Size, ...]:
        """Return the sizes of an item; `known` are tensors with inferred shapes.

        `before` are the tensors that exist when the list is made.
        """
        return tuple(
            self._find_size(axis, known, before) if size is None else size
            for axis, size in enumerate(self.sizes)
        )

    def _find_size(self, axis: int, shapes: InferredTensors, before: Sequence[Tensor]) -> Size:
        item = self.item
        if not item:
            return 1
        place = axis - len(self.sizes)
        size = shapes.get(item, item).shape[place]
        if is_known(size):
            # A dynamic size that could not be inferred has still the declared number.
            is_declared = size == item.shape[place] and item.rank + place in item.dynamic_axes
            return None if is_declared and shapes else size
        places = ((x, i) for x in before for i in range(shapes[x].rank))
        equal_places = (p for p in places if shapes[p[0]].shape[p[1]] == size)
        return next(equal_places, None)


def lower_tensor_lists(graph: Graph) -> Graph:
    """Return the graph with tensors in place of lists, unless a user's class converts lists.

    Raises:
        UnsupportedOperators: a list has items of several dtypes or ranks, or of unknown shape; or
            another operator reads or writes a list.
    """
    used = [op for op, _ in _list_uses(graph.walk_ops())]
    if not used or any(map(has_class, used)):
        return graph
    with as_operator_error():
        return _replace_lists(graph)


def _replace_lists(graph: Graph) -> Graph:
    lists = _find_lists(graph)
    before = {entry: _list_tensors_before(graph, lists, entry) for entry in lists.values()}
    inferred: InferredTensors = {}
    sizes = {entry: entry.find_sizes(inferred, ()) for entry in lists.values()}
    for _ in sizes:  # the item sizes of one list may depend on those of another list
        inferred = infer_dimensions(_lower_graph(graph, lists, sizes, inferred))
        shapes = {entry: entry.find_sizes(inferred, before[entry]) for entry in sizes}
        if shapes == sizes:
            break
        sizes = shapes
    return _lower_graph(graph, lists, sizes, inferred)


def _list_tensors_before(
    graph: Graph, lists: Mapping[Tensor, _List], entry: _List
) -> Sequence[Tensor]:
    """Return the inputs, and the tensors that are computed before a list is made."""
    ops = [op for op, _ in _list_uses(graph.ops) if lists.get(op.outputs[0]) is entry]
    end = next((i for i, op in enumerate(graph.ops) if op in ops), 0)
    computed = (op for op in graph.ops[:end] if not _list_uses([op]))
    outputs = (t for op in computed for t in op.outputs if t.dtype is not DType.VARIANT)
    return *graph.inputs, *outputs


def _list_uses(ops: Iterable[Op]) -> list[tuple[Op, ListForm]]:
    return [(op, FORMS[op.code]) for op in ops if op.custom and op.code in FORMS]


# Find the lists


def _find_lists(graph: Graph) -> dict[Tensor, _List]:
    endpoints = (t for t in (*graph.inputs, *graph.outputs) if t.dtype is DType.VARIANT)
    sets, linked = DisjointSets[Tensor](), dict[Tensor, None]()
    with collect_errors() as errors:
        for tensor in endpoints:
            with errors.at(tensor.name):
                raise OperatorError(
                    "an input or output of the model must be a tensor, got a list of tensors"
                )
        for op in graph.walk_ops():
            with errors.at(op.place):
                for tensors in _link_lists(op):
                    sets.join(tensors)
                    linked |= dict.fromkeys(tensors)
    uses: dict[Tensor, list[Op]] = {}
    for op, form in _list_uses(graph.walk_ops()):
        uses.setdefault(sets.find(find_operand(op, form.lists[0])), []).append(op)
    lists = {}
    with collect_errors() as errors:
        for root, ops in uses.items():
            with errors.at(ops[0].place):
                lists[root] = _describe_list(ops)
    return {t: lists[sets.find(t)] for t in linked if sets.find(t) in lists}


def _link_lists(op: Op) -> Iterator[Sequence[Tensor]]:
    """Yield groups of variant tensors of an operator; the tensors of a group are one list."""
    for _, form in _list_uses([op]):
        yield [find_operand(op, number) for number in form.lists]
        return
    rows: Iterator[Sequence[Tensor | None]]
    if op.is_builtin("WHILE"):
        (body,) = op.graphs
        rows = zip(op.inputs[1:], body.inputs, body.outputs[1:], op.outputs, strict=True)
    elif op.is_builtin("IF"):
        rows = zip(op.outputs, *(graph.outputs for graph in op.graphs), strict=True)
    elif op.is_builtin("RESHAPE"):  # `graph.copy_op` makes the RESHAPE
        rows = iter([(*op.inputs[:1], *op.outputs)])
    elif any(t.dtype is DType.VARIANT for t in op.tensors):
        raise OperatorError(
            "it must not read or write a list of tensors: only operators that create lists, or set,"
            " get or stack their items, are supported"
        )
    else:
        return
    lists = [[t for t in row if t] for row in rows]
    yield from (row for row in lists if any(t.dtype is DType.VARIANT for t in row))


def _describe_list(ops: Sequence[Op]) -> _List:
    pairs = _list_uses(ops)
    numbers = [(op, n, 0) for op, form in pairs if (n := form.item) is not None]
    numbers += [(op, n, 1) for op, form in pairs if (n := form.stack) is not None]
    inputs = [(find_operand(op, n), grows) for op, n, grows in numbers if n >= 0]
    outputs = [find_operand(op, n) for op, n, _ in numbers if n < 0]
    types = {t.dtype for t in (*(t for t, _ in inputs), *outputs)}
    stated = [find_operand(op, form.shape) for op, form in pairs if form.shape is not None]
    shapes = [t.values for t in stated if t.has_data]
    written = [data.tolist() for data in shapes if data.ndim == 1]
    ranks = {t.rank - grows for t, grows in inputs} | {len(shape) for shape in written}
    if len(ranks) != 1 or len(types) != 1:
        raise OperatorError("the items of its list must have one known dtype and rank")
    sizes = [{size for size in column if size >= 0} for column in zip(*written, strict=True)]
    sizes = sizes or [set()] * ranks.pop()
    if any(len(entry) > 1 for entry in sizes):
        raise OperatorError("the items of its list must have one shape")
    sizes_listed = tuple(next(iter(entry), None) for entry in sizes)
    makers = [op for op, form in pairs if form.lists == (~0,)]
    if any(op.code in MAKERS for op in makers) and None in sizes_listed and not inputs:
        raise OperatorError("the items of its list must have a known shape")
    resizes = any(form.resizes or grows(op) for op, form in pairs)
    single = not resizes and all(map(_holds_one_item, makers))
    return _List(types.pop(), sizes_listed, inputs[0][0] if inputs else None, single)


def _holds_one_item(maker: Op) -> bool:
    return maker.code in COUNTED and find_operand(maker, 1).values.tolist() in (1, [1])


# Replace the lists


def _lower_graph(
    graph: Graph,
    lists: Mapping[Tensor, _List],
    sizes: Mapping[_List, Sequence[Size]],
    shapes: InferredTensors,
) -> Graph:
    """Return the graph with tensors in place of lists, for items of `sizes`."""
    tensors = {t: _make_tensor(t, entry.dtype, sizes[entry]) for t, entry in lists.items()}
    for op, form in _list_uses(graph.walk_ops()):
        first = find_operand(op, form.lists[0])
        entry = lists[first]
        tensors |= _reshape_reads(op, form, sizes[entry])
        if op.code in MAKERS:
            count = _count_items(op, shapes)
            tensors[first] = _make_tensor(first, entry.dtype, sizes[entry], count)
    of = {tensors[t]: entry for t, entry in lists.items()}

    def change(op: Op) -> list[Op]:
        for _, form in _list_uses([op]):
            with errors.at(op.place):
                entry = of[find_operand(op, form.lists[0])]
                rw = ListRewriter(op, sizes[entry], entry.single)
                form.rule(rw)
                return rw.ops
        if op.is_builtin("RESHAPE") and op.outputs[0] in of:
            return [replace(op, code="CAST", options=Options(), made=None)]
        return [op]

    with collect_errors() as errors:
        return graph.replace_tensors(tensors).rewrite(change)


def _make_tensor(reference: Tensor, dtype: DType, sizes: Sequence[Size], count: int = -1) -> Tensor:
    """Return a list as a tensor; `count` is -1 if the number of items depends on data."""
    signature = (count, *(size if isinstance(size, int) else -1 for size in sizes))
    shape = tuple(1 if size == -1 else size for size in signature)
    return Tensor(reference.name, shape, dtype, shape_signature=signature)


def _count_items(maker: Op, shapes: InferredTensors) -> int:
    """Return the number of items of a new list, -1 if it depends on data."""
    if maker.code not in COUNTED:
        return 0
    number = find_operand(maker, 1)
    data = shapes.get(number, number).values
    return -1 if data.size != 1 or has_dimensions(data) else int(data.item())


def _reshape_reads(op: Op, form: ListForm, sizes: Sequence[Size]) -> dict[Tensor, Tensor]:
    """Return tensors that are read from a list, with their true rank if the file's is wrong."""
    shapes_of = {}
    for number, first in ((form.item, 1), (form.stack, 0)):
        if number is not None and number < 0:
            tensor = find_operand(op, number)
            reference = _make_tensor(tensor, tensor.dtype, sizes)
            shape, signature = reference.shape[first:], reference.shape_signature[first:]
            if tensor.rank != len(shape):
                shapes_of[tensor] = replace(tensor, shape=shape, shape_signature=signature)
    return shapes_of
