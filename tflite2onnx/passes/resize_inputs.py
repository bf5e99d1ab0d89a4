"""Give the inputs of a graph the sizes that the user chooses, as LiteRT's `resize_tensor_input`."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tflite2onnx.errors import OptionError
from tflite2onnx.graph import Graph
from tflite2onnx.tensor import Shape, Tensor, name_axis
from tflite2onnx.utils.suggestions import suggest_names

_logger = logging.getLogger(__name__)

Size = int | str  # a number, or the name of a dynamic size


def resize_inputs(
    graph: Graph, shapes: Mapping[str, Sequence[Size]]
) -> tuple[Graph, dict[str, str]]:
    """Return the graph with inputs of these sizes, and the names of sizes by name of the axis.

    Args:
        graph: the graph of the entry point.
        shapes: the sizes of inputs, by the name of the input.

    Raises:
        OptionError: there is no such input, or it has another number of axes.
    """
    names = [tensor.name for tensor in graph.inputs]
    for name in shapes:
        if name not in names:
            hint = suggest_names(name, names, few=4)
            raise OptionError(f"`shapes`: the model has no input {name}{hint}")
    resized, words = {}, dict[str, str]()
    for tensor in graph.inputs:
        sizes = shapes.get(tensor.name)
        if sizes is not None:
            resized[tensor] = _resize_input(tensor, sizes)
            words |= {name_axis(tensor, i): s for i, s in enumerate(sizes) if isinstance(s, str)}
    return graph.replace_tensors(resized) if resized else graph, words


def report_unknown_ranks(inputs: Sequence[Tensor]) -> None:
    """Warn of inputs whose number of axes the file does not know."""
    for tensor in inputs:
        if tensor.is_unranked:
            _logger.warning(
                "%s is converted as a scalar because the file does not know how many axes it has;"
                " for more give --shape %s=SIZE,...",
                tensor.name,
                tensor.name,
            )


def _resize_input(tensor: Tensor, sizes: Sequence[Size]) -> Tensor:
    """Return an input with these sizes; a dynamic size keeps the declared size as an example."""
    if len(sizes) != tensor.rank and tensor.rank:
        raise OptionError(
            f"shape of {tensor.name} must have {tensor.rank} sizes, as in {list(tensor.shape)},"
            f" got [{', '.join(map(str, sizes))}]"
        )
    dims: Shape = tensor.shape or (1,) * len(sizes)
    pairs = zip(sizes, dims, strict=True)
    shape = tuple(size if isinstance(size, int) else known for size, known in pairs)
    signature = tuple(size if isinstance(size, int) else -1 for size in sizes)
    return replace(tensor, shape=shape, shape_signature=signature)
