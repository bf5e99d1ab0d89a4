"""Apply the rules of a target to an ONNX model, and list every place that breaks a rule."""

import os
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, inliner, numpy_helper, shape_inference

from tflite2onnx.errors import ModelFileError
from tflite2onnx.targets.rules import QDQ, STANDARD, ModelView, NodeView
from tflite2onnx.targets.table import find_rules

_BYTES = (TensorProto.INT8, TensorProto.UINT8)

# A tensor whose elements are outside of the protobuf, and its elements.
Weight = tuple[TensorProto, np.ndarray[Any, Any]]


class BrokenRule(NamedTuple):
    """A place that breaks a rule of a target.

    `place` is the name of a node, of an input or of an output; `operator` is the operator of the
    node, "input", "output" or "opset". `rule` is the requirement and the value that was found,
    `consequence` is what happens, `advice` is what a user can do, "" if there is nothing, and
    `source` is the document or file that states the rule.
    """

    place: str
    operator: str
    rule: str
    consequence: str
    advice: str
    source: str

    @property
    def words(self) -> str:
        return "; ".join(filter(None, (self.rule, self.consequence, self.advice)))

    def __str__(self) -> str:
        return f"{self.operator} {self.place}: {self.words}"


def check_file(file: str | os.PathLike[str] | bytes, target: str) -> list[BrokenRule]:
    """Check an ONNX file: its functions are inlined, and external weights are not read.

    Args:
        file: the path, or the bytes of the file.
        target: the name of the runtime.

    Raises:
        ModelFileError: the file cannot be read, or is not an ONNX model.
    """
    try:
        if isinstance(file, bytes):
            model = onnx.load_model_from_string(file)
        else:
            model = onnx.load(os.fspath(file), load_external_data=False)
    except OSError as error:
        is_folder = isinstance(error, IsADirectoryError)
        reason = "it is a folder; give a file in it" if is_folder else error.strerror
        raise ModelFileError(f"cannot read the file: {reason}") from error
    except Exception as error:  # protobuf raises an exception of its own
        raise ModelFileError(
            "the file must be an ONNX model, got something else; convert a TFLite model first"
        ) from error
    if not model.graph.node:
        raise ModelFileError(
            "the file must be an ONNX model, got a file that is empty or has no nodes"
        )
    return check_model(_infer_types(model), target)


def check_model(
    model: onnx.ModelProto, target: str, weights: Iterable[Weight] = ()
) -> list[BrokenRule]:
    """Return every place of a model that breaks a rule of the target, in the order of the rules.

    `weights` are tensors that the model lacks. Rules about types and shapes need `value_info`.
    """
    view = _view_model(model, weights)
    return [
        BrokenRule(*breach, rule.consequence, rule.advice, rule.source)
        for rule in find_rules(target)
        for breach in rule.find_breaches(view)
    ]


def _infer_types(model: onnx.ModelProto) -> onnx.ModelProto:
    try:
        if model.functions:
            model = inliner.inline_local_functions(model)
        return shape_inference.infer_shapes(model)
    except Exception:  # noqa: BLE001 - a model with operators of others; rules then see less
        return model


def _view_model(model: onnx.ModelProto, weights: Iterable[Weight]) -> ModelView:
    graphs = [*_walk_graphs(model.graph)]
    by_name = {t.name: t for graph in graphs for t in _list_stored_tensors(graph)}
    apart = {tensor.name: (tensor, data) for tensor, data in weights}
    tensors = [*by_name.values(), *(tensor for tensor, _ in apart.values())]
    infos = [i for g in graphs for i in (*g.input, *g.output, *g.value_info)]
    kinds = {i.name: i.type.tensor_type for i in infos if i.type.HasField("tensor_type")}
    shaped = {name: kind.shape for name, kind in kinds.items() if kind.HasField("shape")}
    nodes = [_view_node(node) for graph in graphs for node in graph.node]
    scales = {name for n in nodes if n.operator in QDQ for name in n.inputs[1:3]}
    places = ("Slice", "Split", "Pad", "ReduceMean")
    scales |= {name for n in nodes if n.operator in places for name in n.inputs[1:]}
    # Weights of 8 bits: a rule reads how far they are from their zero point.
    bytes_of = {n.inputs[0] for n in nodes if n.operator == QDQ[1] and len(n.inputs) > 2}
    scales |= {t.name for t in tensors if t.name in bytes_of and t.data_type in _BYTES}
    return ModelView(
        opset=next((o.version for o in model.opset_import if o.domain in STANDARD), 1),
        nodes=nodes,
        inputs=[port.name for port in model.graph.input],
        outputs=[port.name for port in model.graph.output],
        types={name: _find_type_name(kind.elem_type) for name, kind in kinds.items()}
        | {tensor.name: _find_type_name(tensor.data_type) for tensor in tensors},
        shapes={name: [*map(_read_size, shape.dim)] for name, shape in shaped.items()}
        | {tensor.name: [*tensor.dims] for tensor in tensors},
        constants={tensor.name for tensor in tensors},
        arrays={name: apart[name][1] for name in scales & apart.keys()}
        | {name: _read_elements(by_name[name]) for name in scales & by_name.keys()},
    )


def _walk_graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                if body.node:
                    yield from _walk_graphs(body)


def _list_stored_tensors(graph: onnx.GraphProto) -> Iterator[TensorProto]:
    """Yield the initializers, and the tensors of Constant nodes by the names of their outputs."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.name == "value":
                tensor = TensorProto()
                tensor.CopyFrom(attribute.t)
                tensor.name = node.output[0]
                yield tensor


def _view_node(node: onnx.NodeProto) -> NodeView:
    attributes = {
        item.name: item.s.decode() if item.type == item.STRING else helper.get_attribute_value(item)
        for item in node.attribute
        if item.type in (item.INT, item.INTS, item.STRING)
    }
    first = next((name for name in node.output if name), "")
    return NodeView(
        node.name or first, node.op_type, node.domain, node.input, node.output, attributes
    )


def _read_elements(tensor: TensorProto) -> np.ndarray[Any, Any]:
    """Return the elements of a small tensor; zeros if they are in a file that is not read."""
    if tensor.data_location == TensorProto.EXTERNAL:
        return np.zeros(tensor.dims, np.int8)
    return numpy_helper.to_array(tensor)


def _find_type_name(number: int) -> str:
    """Return the name of an element type, as in numpy; "string" for strings."""
    if number == TensorProto.STRING:
        return "string"
    is_known = number in helper.get_all_tensor_dtypes()
    return helper.tensor_dtype_to_np_dtype(number).name if is_known else "unknown"


def _read_size(dimension: onnx.TensorShapeProto.Dimension) -> int | None:
    return dimension.dim_value if dimension.HasField("dim_value") else None
