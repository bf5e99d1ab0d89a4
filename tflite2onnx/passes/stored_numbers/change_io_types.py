"""Change the element types of inputs and outputs, by QUANTIZE and DEQUANTIZE there.

1. A float32 input that a QUANTIZE reads, or a float32 output that a DEQUANTIZE computes, becomes
   the integers of this operator. The operator is removed if no other operator reads its real
   numbers.
2. An integer input becomes float32 by a QUANTIZE after it, an integer output by a DEQUANTIZE before
   it.
3. An int8 endpoint becomes uint8, and a uint8 endpoint int8, by a QUANTIZE. The zero point of uint8
   is 128 higher, so the real numbers are the same.

The endpoint keeps its name, and an inner tensor gets another name. An endpoint that has the wanted
type is not changed. If one type is given for all endpoints, those that are neither float32 nor
quantized are not changed either.
"""

from collections.abc import Mapping
from dataclasses import replace

from tflite2onnx.errors import OptionError
from tflite2onnx.graph import NO_OP, Graph, Op
from tflite2onnx.quantization.storage import Storage, is_quantized, move_zero_point
from tflite2onnx.tensor import DType, Tensor
from tflite2onnx.utils.suggestions import suggest_names

_TYPES = {"float": DType.FLOAT32, "int8": DType.INT8, "uint8": DType.UINT8}
_INTEGERS = (DType.INT8, DType.UINT8)


def change_io_types(graph: Graph, chosen: str | Mapping[str, str]) -> Graph:
    """Return a graph whose inputs and outputs have these types.

    Args:
        graph: the graph of the entry point, with sub-graphs inlined.
        chosen: "float", "int8" or "uint8", for all endpoints or by the name of the endpoint.

    Raises:
        OptionError: the graph has no endpoint with a name, or does not determine its scale.
    """
    known = dict.fromkeys((*graph.inputs, *graph.outputs))
    names = [tensor.name for tensor in known]
    for name in () if isinstance(chosen, str) else chosen:
        if name not in names:
            hint = suggest_names(name, names, few=4)
            raise OptionError(f"`io_type`: the model has no input or output {name}{hint}")
    inputs = {*graph.inputs}
    for tensor in known:
        dtype = _find_wanted_type(tensor, chosen)
        if dtype:
            change = _change_input if tensor in inputs else _change_output
            graph = change(graph, tensor, dtype)
    return graph


def _find_wanted_type(tensor: Tensor, types: str | Mapping[str, str]) -> DType | None:
    """Return the type that an endpoint gets, None if it is not changed."""
    name = types if isinstance(types, str) else types.get(tensor.name)
    if not name or tensor.dtype is _TYPES[name] or tensor.is_variable:
        return None
    if tensor.dtype is DType.FLOAT32 or (is_quantized(tensor) and not tensor.per_axis):
        return _TYPES[name]
    if isinstance(types, str):
        return None
    raise OptionError(
        f"`io_type` of {tensor.name} must not be given, because the tensor is neither float32 nor"
        f" integers with one scale, got {tensor.dtype.label}"
    )


def _change_input(graph: Graph, old: Tensor, dtype: DType) -> Graph:
    inner = replace(old, name=f"{old.name}/{old.dtype.label}")
    if old.dtype is not DType.FLOAT32 or dtype is DType.FLOAT32:
        new = _make_end(old, old, dtype)
        graph = _replace_endpoint(graph, "inputs", old, new, inner)
        return replace(graph, ops=(_make_op("QUANTIZE", 0, new, inner), *graph.ops))
    readers = (op for op in graph.ops if op.is_builtin("QUANTIZE") and op.inputs == (old,))
    quantize = next(readers, NO_OP)
    if quantize is NO_OP:
        raise _explain_float_end(old, dtype, "no QUANTIZE has a scale for it")
    integers = quantize.outputs[0]
    new = _make_end(old, integers, dtype)
    graph = _replace_endpoint(graph, "inputs", old, new, inner)
    kept = [op for op in graph.ops if integers not in op.outputs]
    if new.dtype is integers.dtype and integers not in graph.outputs:
        graph = replace(graph, ops=tuple(kept)).replace_tensors({integers: new})
        kept = [*graph.ops]
    else:
        kept.insert(0, _make_op("QUANTIZE", quantize.index, new, integers))
    return replace(graph, ops=(_make_op("DEQUANTIZE", quantize.index, new, inner), *kept))


def _change_output(graph: Graph, old: Tensor, dtype: DType) -> Graph:
    inner, last = replace(old, name=f"{old.name}/{old.dtype.label}"), len(graph.ops)
    if old.dtype is not DType.FLOAT32 or dtype is DType.FLOAT32:
        new = _make_end(old, old, dtype)
        graph = _replace_endpoint(graph, "outputs", old, new, inner)
        code = "DEQUANTIZE" if dtype is DType.FLOAT32 else "QUANTIZE"
        return replace(graph, ops=(*graph.ops, _make_op(code, last, inner, new)))
    producer = graph.producers.find(old)
    integers = producer.operand(0)
    if not producer.is_builtin("DEQUANTIZE") or not is_quantized(integers):
        raise _explain_float_end(old, dtype, "no DEQUANTIZE has a scale for it")
    new = _make_end(old, integers, dtype)
    graph = _replace_endpoint(graph, "outputs", old, new, inner)
    if new.dtype is integers.dtype and integers in graph.producers.keys() - {*graph.outputs}:
        return graph.replace_tensors({integers: new})
    return replace(graph, ops=(*graph.ops, _make_op("QUANTIZE", last, integers, new)))


def _make_end(old: Tensor, integers: Tensor, dtype: DType) -> Tensor:
    """Return an input or output of a type, with the scale of the integers unless it is float32.

    Raises:
        OptionError: the integers have 16 bits, or several scales.
    """
    if dtype is DType.FLOAT32:
        return replace(old, dtype=dtype, quantization=None)
    if integers.dtype not in _INTEGERS or not is_quantized(integers) or integers.per_axis:
        raise _explain_float_end(old, dtype, f"the network quantizes it to {integers.dtype.label}")
    storage = Storage(integers.dtype, integers.quantization)
    return replace(old, dtype=dtype, quantization=move_zero_point(storage, dtype).quantization)


def _replace_endpoint(graph: Graph, kind: str, old: Tensor, new: Tensor, inner: Tensor) -> Graph:
    """Return the graph with a new input or output; operators have `inner` in place of `old`.

    `kind` is "inputs" or "outputs". An input that is an output too stays an output of the old type.
    """
    tensors = tuple(new if endpoint is old else endpoint for endpoint in getattr(graph, kind))
    graph = graph.replace_tensors({old: inner})
    graph = replace(graph, tensors=(*graph.tensors, new))
    is_input = kind == "inputs"
    return replace(graph, inputs=tensors) if is_input else replace(graph, outputs=tensors)


def _make_op(code: str, index: int, x: Tensor, y: Tensor) -> Op:
    return Op(code, index, (x,), (y,))


def _explain_float_end(tensor: Tensor, dtype: DType, reason: str) -> OptionError:
    return OptionError(
        f"`io_type` of {tensor.name} must not be {dtype.label}, because {reason}: give the types of"
        f" others by name, as NAME={dtype.label}"
    )
