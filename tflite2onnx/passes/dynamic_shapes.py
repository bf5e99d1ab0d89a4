"""Find the sizes that stay dynamic in the ONNX model, and give them names.

Two kinds of sizes are dynamic: dynamic axes of inputs, and sizes that depend on data (the outputs
of WHERE and UNIQUE). One walk over the graph computes all other sizes from them, as expressions
(see `shape_walk`). Equal expressions get one name.

If an operator requires two sizes to be equal, one expression replaces the other, because the model
does not run for other sizes. If an operator requires a dynamic size to be a number, the size is
fixed.

Operators state the axes for which they can be converted: `DynamicShape.supports_dynamic_axis`.
"""

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from tflite2onnx.errors import (
    FixedSizeError,
    OperatorError,
    UnsupportedOperators,
    as_operator_error,
)
from tflite2onnx.graph import Graph
from tflite2onnx.op import find_operator, is_valid
from tflite2onnx.op.base import Operator, Unknown
from tflite2onnx.op.traits import DynamicShape
from tflite2onnx.passes.shape_walk import ClashError, InferredTensors, OperatorOf, Place, ShapeWalk
from tflite2onnx.quantization.declarations import list_operands
from tflite2onnx.tensor import Tensor, name_axis
from tflite2onnx.utils.dimension import (
    MOST_TRIED,
    Dim,
    Dimension,
    Symbol,
    evaluate,
    find_fitting_size,
    find_only_solution,
    has_dimensions,
    is_known,
    list_symbols,
    make_dimension,
)

# Sizes in place of 1: a typical image, and an image into which every window fits; those of volumes
# are smaller, because verification computes them. All are divisible by 3, 5 and powers of 2.
_ENLARGED, _ENLARGED_VOLUME = (480, 7680), (60, 480)
_IMAGE = 2  # axes
BATCH = "batch"

_logger = logging.getLogger(__name__)


class OpenGraph(NamedTuple):
    """A graph with names of dynamic sizes.

    `axes` has, for the name of each dynamic size, the names of the dynamic axes of inputs (see
    `name_axis`) on which the size depends.
    """

    graph: Graph
    axes: Mapping[str, frozenset[str]]


def infer_shapes(graph: Graph, operator_of: OperatorOf = find_operator) -> Graph:
    """Return the graph with the shapes that the operators infer from the declared input shapes.

    A file declares a dynamic size as 1, also in inner tensors: a tensor that is flattened with a
    dynamic batch is declared with one row. A tensor of unknown rank is declared as a scalar. LiteRT
    asks the kernels for the shapes. Errors of operators at these sizes are ignored here; the
    conversion of the operator raises them again.
    """
    walk = ShapeWalk(graph, operator_of)
    walk.walk()
    tensors = {
        t: shaped
        for t, shaped in walk.shapes.items()
        if shaped.shape != t.shape or shaped.dynamic_axes != t.dynamic_axes
    }
    return graph.replace_tensors(tensors) if tensors else graph


def infer_dimensions(graph: Graph) -> InferredTensors:
    """Return all tensors, with dimensions for the sizes that follow from dynamic axes of inputs.

    Tensors whose shape cannot be inferred keep their declared shape.
    """
    # Batch sizes are assumed to be equal.
    places = _list_dynamic_axes(graph.inputs)
    names = {place: name_axis(*place) if place[1] else BATCH for place in places}
    return ShapeWalk(graph, opened=_make_dimensions(names)).walk()


def name_dynamic_axes(
    graph: Graph,
    operator_of: OperatorOf,
    fixed: Collection[str] | None = (),
    words: Mapping[str, str] | None = None,
) -> OpenGraph:
    """Return the graph with names for all dynamic sizes, and constants for other computed sizes.

    `fixed` are the names of dynamic axes of inputs that have the declared size; None for all.
    `words` are names of dynamic sizes, by the name of the axis.

    Raises:
        FixedSizeError: the output shape of an operator is valid only if some dynamic axes have the
        declared size.
    """
    dynamic = [] if fixed is None else _list_dynamic_axes(graph.inputs)
    unknown = any(_has_unknown_size(operator_of(op)) for op in graph.walk_ops())
    graph = _enlarge_sizes(graph, operator_of, dynamic, unknown=unknown)
    places = [] if fixed is None else _list_dynamic_axes(graph.inputs)
    places = [place for place in places if name_axis(*place) not in (fixed or ())]
    if not places and not unknown:
        return OpenGraph(graph, {})
    names, walk = _Walks(graph, operator_of, words or {}).name_axes(places)
    return _Naming(graph, walk, names).make_open_graph()


def enlarge_samples(graph: Graph, operator_of: OperatorOf) -> Graph:
    """Return the graph with larger examples of dynamic sizes if a sample of size 1 does not run."""
    dynamic = [(t, axis) for t, axis in _list_dynamic_axes(graph.inputs) if axis]
    return _enlarge_sizes(graph, operator_of, dynamic, unknown=False, may_be_empty=False)


def _has_unknown_size(operator: Operator) -> bool:
    """Return whether a size of an output is known at run time only."""
    with suppress(OperatorError), as_operator_error():  # the conversion raises the error again
        sizes = (size for shape in operator.output_shapes for size in shape)
        return any(isinstance(size, Unknown) for size in sizes)
    return False


def _list_dynamic_axes(inputs: Sequence[Tensor]) -> list[Place]:
    return [(t, axis) for t in inputs for axis in sorted(t.dynamic_axes)]


def _name_places(places: Sequence[Place], words: Mapping[str, str]) -> dict[Place, str]:
    """Return the user's names of axes, and names of the others."""
    return {place: words.get(name_axis(*place), name_axis(*place)) for place in places}


def _enlarge_sizes(
    graph: Graph,
    operator_of: OperatorOf,
    dynamic: Collection[Place],
    *,
    unknown: bool,
    may_be_empty: bool = True,
) -> Graph:
    """Return the graph with larger examples of sizes if it does not run at the declared sizes.

    A dynamic or unknown size is declared as 1, but no window of a spectrogram fits into a single
    sample, and no reflected padding into a single row. A single row that is cropped becomes empty.
    """
    axes_of_size_1 = {(t, i) for t, i in dynamic if t.shape[i] == 1}
    inner = {(t, i) for t, i in axes_of_size_1 if i}
    if not (axes_of_size_1 or unknown) or all(
        is_valid(operator_of(op)) and (may_be_empty or all(0 not in t.shape for t in op.outputs))
        for op in graph.walk_ops()
    ):
        return graph
    most = max(Counter(t for t, _ in inner).values(), default=0)
    sizes = _ENLARGED if most <= _IMAGE else _ENLARGED_VOLUME
    for places, size in (*((inner, size) for size in sizes), (axes_of_size_1, sizes[0])):
        shapes = {
            t: tuple(size if (t, i) in places else n for i, n in enumerate(t.shape))
            for t in graph.inputs
        }
        enlarged = graph.replace_tensors({t: replace(t, shape=s) for t, s in shapes.items()})
        walk = ShapeWalk(enlarged, operator_of, strict=True, example=size)
        with suppress(OperatorError):
            walk.walk()
            return enlarged.replace_tensors(walk.shapes)
        if unknown and (fitting := _fit_sizes(enlarged, operator_of, size)):
            return fitting
    return graph


def _fit_sizes(graph: Graph, operator_of: OperatorOf, example: int) -> Graph | None:
    """Return the graph with examples of unknown sizes, some of which operators require.

    The channels of an image of unknown size are as many as those of the filters. Returns None if
    an operator is not valid for the other sizes, which are `example`.
    """
    with suppress(OperatorError):
        walks = _Walks(graph, operator_of, {}, example)
        _, walk = walks.name_axes(_list_dynamic_axes(graph.inputs))
        sized = {t: _evaluate_sizes(shaped) for t, shaped in walk.shapes.items()}
        fitting = graph.replace_tensors(sized)
        if all(is_valid(operator_of(op)) for op in fitting.walk_ops()):
            return fitting
    return None


def _evaluate_sizes(tensor: Tensor) -> Tensor:
    signature = tuple(size if is_known(size) else -1 for size in tensor.shape)
    shape = tuple(map(evaluate, tensor.shape))
    return replace(tensor, shape=shape, shape_signature=signature if -1 in signature else ())


def name_dimensions(inputs: Sequence[Tensor], words: Mapping[str, str]) -> dict[Place, Dimension]:
    """Return the dimensions of dynamic axes; `words` are the user's names, by name of the axis."""
    return _make_dimensions(_name_places(_list_dynamic_axes(inputs), words))


def _make_dimensions(names: Mapping[Place, str]) -> dict[Place, Dimension]:
    """Return the dimensions of dynamic axes; axes of one name have one dimension."""
    symbols: dict[str, Symbol] = {}
    for (tensor, axis), name in names.items():
        symbols.setdefault(name, Symbol(name, tensor.shape[axis]))
    return {place: make_dimension(symbols[name]) for place, name in names.items()}


# Walk over the graph


class _Clash(NamedTuple):
    """An error that remains, the sizes that are its reason, and whether the file fixes them.

    Without names the reason is unknown.
    """

    error: ClashError
    names: Collection[str]
    fixes: bool

    def make_error(self, names: Mapping[Place, str]) -> FixedSizeError:
        """Return the error that names the axes of these sizes."""
        places = (place for place, name in names.items() if not self.names or name in self.names)
        axes = [name_axis(*place) for place in places]
        return FixedSizeError(self.error.reason, self.error.place, axes)


class _Walks(NamedTuple):
    """Walks over a graph; `words` are names of dynamic sizes, `example` is that of `ShapeWalk`."""

    graph: Graph
    operator_of: OperatorOf
    words: Mapping[str, str]
    example: int = 1

    def name_axes(self, places: Sequence[Place]) -> tuple[Mapping[Place, str], ShapeWalk]:
        """Return the names of dynamic axes, and the walk; batches share a name if needed."""
        words = self.words
        labels = _name_places(places, words)
        batches = [place for place in places if place[1] == 0 and name_axis(*place) not in words]
        if len(batches) > 1:
            # A size that must be a number is no batch.
            walk, clash = self._replace_sizes(labels, only_numbers=True)
            if clash is None:
                return labels, walk
            if clash.fixes:  # other names make no difference
                raise clash.make_error(labels)
            batches = [(t, axis) for t, axis in batches if not is_known(walk.shapes[t].shape[axis])]
            walk, clash = self._replace_sizes(labels, apart=batches)
            firsts = [walk.shapes[t].shape[0] for t, _ in batches]
            if clash is None and len({*firsts}) == len(firsts):
                return labels, walk  # no two first axes must be equal
        names = labels | dict.fromkeys(batches, BATCH)
        try:
            walk = self._walk_with_equal_sizes(names)
        except FixedSizeError as error:  # some first axis may not be a batch
            try:
                return labels, self._walk_with_equal_sizes(labels)
            except FixedSizeError as other:
                raise other from error
        # If another axis must be the batch, the first axis is the time.
        shapes = {t: walk.shapes[t].shape for t, _ in batches}
        times = [(t, 0) for t, shape in shapes.items() if shape.count(shape[0]) > 1]
        if times:
            names |= {place: labels[place] for place in times}
            walk = self._walk_with_equal_sizes(names)
        return names, walk

    def _walk_with_equal_sizes(self, names: Mapping[Place, str]) -> ShapeWalk:
        """Return the walk in which required equalities of sizes hold."""
        walk, clash = self._replace_sizes(names)
        if clash is None:
            return walk
        raise clash.make_error(names) from clash.error

    def _replace_sizes(
        self,
        names: Mapping[Place, str],
        *,
        only_numbers: bool = False,
        apart: Collection[Place] = (),
    ) -> tuple[ShapeWalk, _Clash | None]:
        """Return the last walk with sizes that replace equal sizes, and the clash that remains.

        A clash that requires two of the axes `apart` to be equal ends the walks: a network with
        many states would need one walk for each of them. For the same reason sizes that must be
        those of the file are collected in one clash.
        """
        opened, equal = _make_dimensions(names), dict[Dimension, Dim]()
        kept = {opened[place] for place in apart}
        order = {dimension: i for i, dimension in enumerate(dict.fromkeys(opened.values()))}
        inputs = {symbol for dimension in order for symbol in dimension.symbols}
        graph, operator_of, words, example = self
        first: ClashError | None = None
        fixed = set[Dimension]()
        while True:
            walk = ShapeWalk(graph, operator_of, opened, equal, strict=True, example=example)
            clash = _find_clash(walk)
            if clash is None:
                break
            if number := _find_fixed_size(clash, order, words):
                first = first or clash
                fixed.add(number)
                equal[number] = evaluate(number)
                continue
            replaced = find_equal_sizes(clash.dims, order, words, broadcasts=clash.broadcasts)
            # If nothing was replaced, the next round would fail in the same way.
            is_last = replaced.keys() <= equal.keys()
            # A size that depends on data may be equal to the size of one of the inputs.
            joins = any(not is_known(n) and old.symbols & inputs for old, n in replaced.items())
            meets = any(kept.issuperset(pair) for pair in replaced.items())
            if is_last or meets or (only_numbers and joins):
                break
            equal |= replaced
        remaining = first or clash
        if remaining is None:
            return walk, None
        reasons = {str(number) for number in fixed} or remaining.names
        return walk, _Clash(remaining, _list_equal_names(reasons, equal, order), bool(fixed))


def _find_clash(walk: ShapeWalk) -> ClashError | None:
    try:
        walk.walk()
    except ClashError as clash:
        return clash
    return None


def _find_fixed_size(
    clash: ClashError, order: Mapping[Dimension, int], words: Mapping[str, str]
) -> Dimension | None:
    """Return the size of an input that must be the number in the file, None if there is no such.

    A size that the user has named may not be fixed.
    """
    if clash.broadcasts or len(clash.dims) != 2:
        return None
    for size, number in (clash.dims, clash.dims[::-1]):
        if isinstance(size, Dimension) and size in order and number == evaluate(size):
            return size if str(size) not in words.values() else None
    return None


def _list_equal_names(
    names: Collection[str], equal: Mapping[Dimension, Dim], order: Mapping[Dimension, int]
) -> Collection[str]:
    """Return names with those of all sizes of inputs that must be equal to one of these."""
    found, more = set[str](), {*names}
    while more:
        found |= more
        more = {
            str(old)
            for old, new in equal.items()
            if old in order and str(old) not in found
            if not found.isdisjoint(symbol.name for symbol in list_symbols(new))
        }
    return found


def find_equal_sizes(
    dims: Sequence[Dim],
    order: Mapping[Dimension, int],
    words: Mapping[str, str],
    *,
    broadcasts: bool,
) -> dict[Dimension, Dim]:
    """Return the replacement that makes two dimensions equal, empty if they cannot be equal.

    `order` has the inputs' sizes, and `words` the names that the user has given them. With
    `broadcasts`, one of the dimensions may also be 1.
    """
    replaced = (_find_replacement(dims[0], dims[1], order) if dims else None) or {}
    numbers = [old for old, new in replaced.items() if is_known(new) and old in order]
    if any(broadcasts or str(old) in words.values() for old in numbers):
        return {}  # 1 is possible too, or the user wants this size to be dynamic
    return replaced


def _find_replacement(
    one: Dim, other: Dim, order: Mapping[Dimension, int]
) -> dict[Dimension, Dim] | None:
    """Return which of two dimensions replaces the other; None if they cannot be equal.

    A size that depends on data is replaced rather than the size of an input, a symbol rather than
    an expression, and a long expression rather than a short one. `order` has the inputs' sizes.
    """
    for old, new in ((one, other), (other, one)):
        symbol = old.symbol if isinstance(old, Dimension) else None
        if symbol is not None and old not in order and symbol not in list_symbols(new):
            return {old: new}  # type: ignore[dict-item]
    if not isinstance(one, Dimension) or not isinstance(other, Dimension):
        # Where the file declares 1 for a dynamic size, the operator may require another number.
        old, new = find_only_solution(one, other) or find_only_solution(other, one) or (0, 0)
        is_placeholder = old in order and evaluate(old) == 1 and new not in (0, 1)
        return {old: new} if is_placeholder else None  # type: ignore[dict-item]
    if one in order and other in order:
        first, last = sorted((one, other), key=order.__getitem__)
        return {last: first}
    if evaluate(one) != evaluate(other):
        return None
    for old, new in ((one, other), (other, one)):
        if old in order and old.symbol not in new.symbols:
            return {old: new}
    short, long = sorted((one, other), key=lambda dim: len(str(dim)))
    return {long: short}


class _Naming:
    """Gives names to the dynamic sizes of a graph; `names` has the names of the inputs' axes."""

    def __init__(self, graph: Graph, walk: ShapeWalk, names: Mapping[Place, str]) -> None:
        self._graph, self._shapes, self._known = graph, walk.shapes, walk.known
        self._made, self._least = walk.made, walk.least
        self._axes: dict[str, set[str]] = {}
        for place, name in names.items():
            self._axes.setdefault(name, set()).add(name_axis(*place))
        self._names: dict[Dimension, str] = {}
        self._examples: dict[Dimension, int] = {}

    def make_open_graph(self) -> OpenGraph:
        replaced: dict[Tensor, Tensor] = {}
        graph = self._name_graph(self._graph, replaced)
        tensors = tuple(replaced.get(t, t) for t in graph.tensors)
        axes = {
            name: frozenset().union(*(self._axes.get(s.name, ()) for s in dimension.symbols))
            for dimension, name in self._names.items()
        }
        least = _find_least_sizes(self._least)
        return OpenGraph(replace(graph, tensors=tensors, least_sizes=least), axes)

    def _name_graph(self, graph: Graph, replaced: dict[Tensor, Tensor]) -> Graph:
        """Return a graph with names of dynamic sizes, and add its tensors to `replaced`."""
        replaced |= {t: self._name_sizes(t) for t in graph.inputs}
        ops = []
        for op in graph.ops:
            if op.outputs and all(map(self._is_constant, op.outputs)):
                replaced |= {t: self._known[t] for t in op.outputs}
            else:
                replaced |= {t: _declare_sizes(self._name_sizes(t)) for t in op.outputs}
                graphs = tuple(self._name_graph(inner, replaced) for inner in op.graphs)
                outputs = tuple(replaced[t] for t in op.outputs)
                renamed = replace(op.with_inputs(replaced), outputs=outputs, graphs=graphs)
                made = self._made.get(op)
                ops.append(replace(renamed, made=made) if made else renamed)
        return replace(
            graph,
            ops=tuple(ops),
            inputs=tuple(replaced[t] for t in graph.inputs),
            outputs=tuple(replaced.get(t, t) for t in graph.outputs),
        )

    def _is_constant(self, tensor: Tensor) -> bool:
        known = self._known[tensor]
        return known.has_data and not has_dimensions(known.values)

    def _name_sizes(self, tensor: Tensor) -> Tensor:
        symbols, shape = dict[int, str](), list[int]()
        sizes = self._shapes[tensor].shape
        declared = tensor.shape if len(sizes) == tensor.rank else ()
        for axis, size in enumerate(sizes):
            if not isinstance(size, Dimension):
                shape.append(size)
                continue
            shape.append(self._find_example(size, declared[axis : axis + 1]))
            symbol = size.symbol
            name = symbol.name if symbol else name_axis(tensor, axis)
            symbols[axis] = self._names.setdefault(size, name)
        if not symbols and tuple(shape) == tensor.shape:
            return tensor
        return replace(tensor, shape=tuple(shape), symbols=symbols)

    def _find_example(self, size: Dimension, declared: Sequence[int]) -> int:
        """Return an example value of a dimension, the same for all tensors.

        The example of a size that depends on data is the declared size of the first tensor.
        """
        follows = all(symbol.least for symbol in size.symbols)
        value = declared[0] if declared and not follows else max(evaluate(size), 0)
        return self._examples.setdefault(size, value)


def _find_least_sizes(limits: Sequence[tuple[Dim, int]]) -> dict[str, int]:
    """Return the least dynamic sizes, by name, with which others reach their limits."""
    least: dict[str, int] = {}
    for size, limit in limits:
        name, number = find_fitting_size(size, range(limit, MOST_TRIED)) or ("", 1)
        least[name] = max(number, least.get(name, 1))
    return {name: number for name, number in least.items() if number > 1}


def _declare_sizes(tensor: Tensor) -> Tensor:
    """Return a tensor whose signature fixes all sizes that have no name."""
    if tensor.dynamic_axes <= tensor.symbols.keys():
        return tensor
    sizes = (-1 if axis in tensor.symbols else size for axis, size in enumerate(tensor.shape))
    return replace(tensor, shape_signature=tuple(sizes))


# Check the operators


def check_dynamic_axes(operators: Sequence[Operator], axes: Mapping[str, frozenset[str]]) -> None:
    """Check that operators can be converted for the dynamic sizes that they read or write.

    Raises:
        FixedSizeError: an operator needs to know the size.
        UnsupportedOperators: an operator needs to know a data-dependent size.
    """
    errors = [
        FixedSizeError(
            f"it needs the size of axis {axis} of {tensor.name} as a constant",
            operator.op.place,
            axes.get(tensor.symbols[axis], ()),
        )
        for operator in operators
        for tensor, axis in _find_unsupported_axes(operator)
    ]
    data_dependent = [error for error in errors if not error.axes]
    if data_dependent:
        raise UnsupportedOperators(data_dependent[:1])
    if errors:
        names = {axis for error in errors for axis in error.axes}
        raise FixedSizeError(errors[0].reason, errors[0].place, names)


def _find_unsupported_axes(operator: Operator) -> Iterator[Place]:
    """Yield the dynamic axes of operands for which the operator cannot be converted."""
    operands = list_operands(operator.op).items()
    for operand, tensor, axis in ((i, t, axis) for i, t in operands for axis in t.symbols):
        with as_operator_error():
            if not (
                isinstance(operator, DynamicShape) and operator.supports_dynamic_axis(operand, axis)
            ):
                yield tensor, axis


def report_fixed_axes(
    fixed: Mapping[str, str], inputs: Sequence[Tensor], converted: Iterable[Tensor] = ()
) -> None:
    """Print one line for all axes of inputs that stay fixed, with the first reason.

    `converted` are the inputs that are converted, whose sizes may be larger than in the file.
    """
    if not fixed:
        return
    name, cause = next(iter(fixed.items()))
    tensor, axis = next(
        (t, axis) for t in inputs for axis in range(t.rank) if name_axis(t, axis) == name
    )
    count = f"{len(fixed)} axes of inputs are" if len(fixed) > 1 else f"axis {name} is"
    shape = {t.name: t.shape for t in converted}.get(tensor.name, tensor.shape)
    size = "as in the file" if shape[axis] == tensor.shape[axis] else f"at {shape[axis]}"
    first = f", {name}" if len(fixed) > 1 else ""
    others = "; `tflite2onnx inspect` lists the others" if len(fixed) > 1 else ""
    _logger.warning(
        "%s fixed %s%s because %s; for other sizes give --shape %s=%s%s",
        count,
        size,
        first,
        cause,
        tensor.name,
        ",".join(map(str, shape)),
        others,
    )
