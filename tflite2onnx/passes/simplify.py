"""Bring operators into fewer forms, before layouts are planned (see `passes`).

1. `densify_constants`: sparse constants become dense, and DENSIFY is removed.
2. `remove_copies`: a RESHAPE to the shape of its input is removed, and a resize of an image to its
   own size. Keras writes such a RESHAPE around each layer of TimeDistributed, between operators
   that patterns match.
3. `align_axes`: inputs of lower rank get leading axes of size 1, so that axes correspond.
4. `keep_axes`: FULLY_CONNECTED on each pixel of an image, and reductions, keep the axes if the only
   reader is a RESHAPE that restores the axes.
5. `absorb_flatten`: FULLY_CONNECTED reads the input of a flattening RESHAPE; its weights get the
   axes of that input, so that the planner can permute constants in place of activations.
6. `eliminate_dead_operators`: operators whose outputs nothing reads are removed.
"""

from collections.abc import Mapping
from dataclasses import replace

from tflite2onnx.graph import ABSENT, Graph, Model, Op, copy_op
from tflite2onnx.made_options import CastOptions
from tflite2onnx.op import find_operator
from tflite2onnx.op.common.checks import find_features
from tflite2onnx.op.traits import ReshapesInputs
from tflite2onnx.passes.operands import normalize_axes
from tflite2onnx.quantization.storage import same_quantization, same_scale
from tflite2onnx.reader.sparsity import densify_all
from tflite2onnx.tensor import DType, Shape, Tensor

_MATRIX = 2  # axes
_IMAGE = 4


def densify_constants(model: Model) -> Model:
    """Replace sparse constants by dense ones.

    Raises:
        ModelFileError: a constant is damaged, or the dense constants are far larger than the file.
    """
    operands = (t for graph in model.graphs for op in graph.walk_ops() for t in op.present)
    outputs = (t for graph in model.graphs for t in graph.walk_outputs())
    sparse = [t for t in dict.fromkeys((*operands, *outputs)) if t.sparsity and t.has_data]
    if not sparse and all("DENSIFY" not in graph.codes for graph in model.graphs):
        return model
    constants = {
        t: replace(t, data=data, sparsity=None)
        for t, data in zip(sparse, densify_all(sparse), strict=True)
    }

    def densify_constant(op: Op) -> list[Op]:
        known_op = op.with_inputs(constants)
        source = known_op.operand(0)
        result = next(iter(op.outputs), ABSENT)
        is_one = source.has_data and len(op.outputs) == 1 and result.dtype is source.dtype
        if not op.is_builtin("DENSIFY") or not is_one:
            return [known_op]
        constants[result] = replace(result, data=source.data, shape=source.shape)
        return []

    graphs = tuple(graph.rewrite(densify_constant, constants) for graph in model.graphs)
    return model._replace(graphs=graphs)


def remove_copies(graph: Graph) -> Graph:
    """Return the graph without RESHAPE and resizes to equal sizes, but for what graphs return."""
    outputs, replacements = {*graph.walk_outputs()}, dict[Tensor, Tensor]()

    def keep(op: Op) -> list[Op]:
        known_op = op.with_inputs(replacements)
        x, y = known_op.operand(0), next(iter(op.outputs), ABSENT)
        is_resize = op.is_builtin("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR")
        keeps = op.is_builtin("RESHAPE") or (is_resize and op.operand(1).has_data)
        is_copy = keeps and x.sizes == y.sizes and x.dtype is y.dtype
        if not is_copy or y in outputs or not same_quantization(x.quantization, y.quantization):
            return [known_op]
        replacements[y] = x
        return []

    return graph.rewrite(keep, replacements)


_Shaped = dict[tuple[Tensor, Shape], Tensor]


def align_axes(graph: Graph, around: _Shaped | None = None) -> Graph:
    """Return the graph with leading axes for broadcast inputs: in constants, else by RESHAPE.

    `around` are the reshaped tensors of the enclosing graphs, which sub-graphs may read. The
    enclosing graphs cannot read tensors of sub-graphs.
    """
    ops: list[Op] = []
    aligned = dict(around or {})
    for op in graph.ops:
        inputs = list(op.inputs)
        operator = find_operator(op)
        shapes = operator.broadcast_shapes() if isinstance(operator, ReshapesInputs) else ()
        for i, (tensor, shape) in enumerate(zip(op.inputs, shapes, strict=False)):
            if not tensor or not shape or shape == tensor.shape:
                continue
            key = (tensor, shape)
            if key not in aligned:
                aligned[key] = _with_shape(tensor, shape)
                if not tensor.has_data:
                    ops.append(copy_op(op, tensor, aligned[key]))
            inputs[i] = aligned[key]
        graphs = tuple(align_axes(inner, aligned) for inner in op.graphs)
        is_aligned = (*inputs,) == op.inputs and not graphs
        ops.append(op if is_aligned else replace(op, inputs=tuple(inputs), graphs=graphs))
    return graph if (*ops,) == graph.ops else replace(graph, ops=tuple(ops))


def _with_shape(tensor: Tensor, shape: Shape) -> Tensor:
    """Return a tensor with other leading axes; trailing axes stay."""
    name = f"{tensor.name}/{'x'.join(map(str, shape))}"
    quantization = tensor.quantization
    if quantization and quantization.per_axis:
        axis = quantization.axis + len(shape) - tensor.rank
        quantization = replace(quantization, axis=axis)
    symbols = {axis + len(shape) - tensor.rank: s for axis, s in tensor.symbols.items()}
    return replace(
        tensor.reshape_constant(shape), name=name, quantization=quantization, symbols=symbols
    )


def keep_axes(graph: Graph) -> Graph:
    """Let FULLY_CONNECTED and reductions keep axes, if a RESHAPE restores the axes after them.

    Keras flattens the pixels of an image for a dense layer and restores the axes after it. Between
    flattened tensors and channels-first convolutions the ONNX model would need Transposes. A mean
    of an image that keeps its axes stays in the blocked layout that kernels of convolutions use.
    """
    ops_of_graph = list(graph.walk_ops())
    reshapes = [op for op in ops_of_graph if op.is_builtin("RESHAPE")]
    sources = {op.outputs[0]: op.operand(0) for op in reshapes}
    ops: dict[Op, Op] = {}
    for op in ops_of_graph:
        if op.is_builtin("FULLY_CONNECTED"):
            ops |= _keep_axes_of(op, sources, graph.readers.find_only_reader(op.outputs[0]))
        elif op.options.get("keep_dims") is False and not op.custom:
            ops |= _keep_reduced_axes(op, graph.readers.find_only_reader(op.outputs[0]))
    absorbed = {graph.readers.find_only_reader(op.outputs[0]) for op in ops}
    return graph.rewrite(lambda op: () if op in absorbed else (ops.get(op, op),))


def _keep_axes_of(op: Op, sources: Mapping[Tensor, Tensor], follower: Op) -> dict[Op, Op]:
    """Return the operator with an image's axes, if the operator after it restores them."""
    x, weights = op.operand(0), op.operand(1)
    source = x if x.rank == _IMAGE else sources.get(x, x)
    if not follower.is_builtin("RESHAPE") or source.rank != _IMAGE or weights.rank != _MATRIX:
        return {}
    image = follower.outputs[0]
    if image.sizes != (*source.sizes[:-1], weights.shape[0]) or not _same_numbers(source, x):
        return {}
    if source.shape[-1] != weights.shape[1] or not _same_numbers(op.outputs[0], image):
        return {}
    result = replace(op, inputs=(source, *op.inputs[1:]), outputs=(image,))
    return {op: result.with_options(keep_num_dims=True)}


def _keep_reduced_axes(op: Op, follower: Op) -> dict[Op, Op]:
    """Return the reduction with axes of one element, if the operator after it restores them."""
    x, axes = op.operand(0), normalize_axes(op.operand(1).values, max(op.operand(0).rank, 1))
    shape = tuple(1 if axis in axes else size for axis, size in enumerate(x.sizes))
    if not axes or not follower.is_builtin("RESHAPE") or follower.outputs[0].sizes != shape:
        return {}
    if not _same_numbers(op.outputs[0], follower.outputs[0]):
        return {}
    return {op: replace(op, outputs=follower.outputs).with_options(keep_dims=True)}


def absorb_flatten(graph: Graph) -> Graph:
    """Let FULLY_CONNECTED read the tensor before a RESHAPE, or before its own flattening."""
    reshapes = [op for op in graph.walk_ops() if op.is_builtin("RESHAPE")]
    pairs = [(op.operand(0), op.outputs[0]) for op in reshapes]
    sources = {y: x for x, y in pairs if _same_numbers(x, y)}
    reshaped: _Shaped = {}

    def absorb(op: Op) -> list[Op]:
        source, shape = _find_unflattened(op, sources)
        if not shape:
            return [op]
        weights = op.operand(1)
        shaped = reshaped.setdefault((weights, shape), weights.reshape_constant(shape))
        return [replace(op, inputs=(source, shaped, *op.inputs[2:]))]

    return graph.rewrite(absorb)


def _same_numbers(a: Tensor, b: Tensor) -> bool:
    """Return whether two tensors have equal numbers of elements, and the same scale."""
    return a.elements == b.elements and same_scale(a, b)


def _find_unflattened(op: Op, sources: Mapping[Tensor, Tensor]) -> tuple[Tensor, Shape]:
    """Return the input of FULLY_CONNECTED with several axes of features, and the weights' shape.

    The shape is () if the operator is not to be changed.
    """
    x, weights = op.operand(0), op.operand(1)
    source = sources.get(x, x)
    dense = op.is_builtin("FULLY_CONNECTED") and weights.has_data
    if not dense or any(t.rank != _MATRIX for t in (weights, *op.outputs)):
        return source, ()
    first = find_features(source.shape, weights.shape[1])
    features = source.shape[first:]
    along = weights.quantization
    is_fixed = bool(along and (along.block_size or (along.per_axis and along.axis)))
    is_fixed = is_fixed or max(source.symbols, default=-1) >= first
    if not 1 < len(features) < source.rank or is_fixed:
        return source, ()
    return source, (weights.shape[0], *features)


def trust_indices(graph: Graph) -> Graph:
    """Remove the saturation from each CAST of floats that are only read as indices of rows.

    A float outside of the range of the integers is no row, and LiteRT refuses it.
    """

    def trust(op: Op) -> list[Op]:
        if op.is_builtin("CAST") and op.outputs[0].dtype in (DType.INT32, DType.INT64):
            reader = graph.readers.find_only_reader(op.outputs[0])
            lists = {"GATHER": reader.inputs[1:2], "EMBEDDING_LOOKUP": reader.inputs[:1]}
            if not reader.custom and op.outputs[0] in lists.get(reader.code, ()):
                return [replace(op, made=CastOptions(saturates=False))]
        return [op]

    return graph.rewrite(trust)


def eliminate_dead_operators(graph: Graph) -> Graph:
    """Return the graph without the operators whose outputs nothing reads."""
    ops, _ = find_live_ops(graph)
    return graph if ops == graph.ops else replace(graph, ops=ops)


def find_live_ops(graph: Graph) -> tuple[tuple[Op, ...], set[Tensor]]:
    """Return the operators that are needed, and all tensors that these operators read."""
    alive: set[Tensor] = set(graph.outputs)
    live = []
    for op in reversed(graph.ops):
        if op.outputs and alive.isdisjoint(op.outputs):
            continue
        graphs = []
        for inner in op.graphs:
            ops, tensors = find_live_ops(inner)
            graphs.append(replace(inner, ops=ops))
            alive |= tensors
        live.append(replace(op, graphs=tuple(graphs)) if graphs else op)
        alive.update(op.present)
    return tuple(reversed(live)), alive
