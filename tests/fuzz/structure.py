"""Changes to the meaning of a model: types, sizes, quantization, constants, operands.

Most of the changed files stay valid, so that they are converted and LiteRT runs them.
"""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from tests.fuzz.numbers import FLOATS, INTEGERS
from tflite2onnx.op import OPERATORS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.facts import Table

_SIZES = (0, 1, 2, 3, 4, 5, 7, 8, 13, 16, 64, 1000, 65536, 1 << 24, 2**31 - 1, -1)
_TYPES = sorted({n for name, n in vars(schema.TensorType).items() if isinstance(n, int)})
_LAST_CODE = max(n for n in vars(schema.BuiltinOperator).values() if isinstance(n, int))
_CUSTOM = sorted(name for name in OPERATORS if not name.isupper())


def _choose_graph(model: Table, generator: random.Random) -> Table:
    return generator.choice(model.subgraphs)


def _choose_tensor(model: Table, generator: random.Random) -> Table:
    return generator.choice(_choose_graph(model, generator).tensors)


def change_operator(model: Table, generator: random.Random) -> None:
    """Change the code of an operator, so that its options are of another operator."""
    code = generator.choice(model.operatorCodes)
    if code.customCode and generator.random() < 0.7:
        code.customCode = generator.choice(_CUSTOM).encode()
        return
    number = generator.randrange(_LAST_CODE + 2)
    code.builtinCode, code.deprecatedBuiltinCode = number, min(number, 127)


def change_type(model: Table, generator: random.Random) -> None:
    """Change the type of a tensor, or of all tensors of its type."""
    tensor, every = _choose_tensor(model, generator), generator.random() < 0.5
    old, new = tensor.type, generator.choice(_TYPES)
    for each in (t for graph in model.subgraphs for t in graph.tensors if every):
        each.type = new if each.type == old else each.type
    tensor.type = new


def change_size(model: Table, generator: random.Random) -> None:
    """Change the size of an axis in one tensor, or in all tensors with an axis of this size."""
    tensor, every = _choose_tensor(model, generator), generator.random() < 0.5
    axis = generator.randrange(len(tensor.shape))
    old = tensor.shape[axis]
    new = generator.choice((*_SIZES, old + 1, old - 1, old * 2))
    for each in (t for graph in model.subgraphs for t in graph.tensors if every):
        if each.shape is not None:
            each.shape = np.where(np.asarray(each.shape) == old, new, each.shape)
    tensor.shape = np.array([*tensor.shape[:axis], new, *tensor.shape[axis + 1 :]])


def change_rank(model: Table, generator: random.Random) -> None:
    """Add or remove an axis."""
    tensor = _choose_tensor(model, generator)
    shape: list[int] = [] if tensor.shape is None else [*tensor.shape]
    at = generator.randrange(len(shape) + 1)
    if shape and generator.random() < 0.5:
        shape.pop(at % len(shape))
    else:
        shape.insert(at, generator.choice((1, 1, 1, *_SIZES)))
    tensor.shape = np.array(shape, np.int32)


def make_size_dynamic(model: Table, generator: random.Random) -> None:
    """Make axes dynamic."""
    tensor = _choose_tensor(model, generator)
    sizes = [-1 if generator.random() < 0.5 else int(size) for size in tensor.shape]
    tensor.shapeSignature = np.array(sizes, np.int32)


def change_scale(model: Table, generator: random.Random) -> None:
    """Change or remove the quantization of a tensor, or copy it from another tensor."""
    tensor = _choose_tensor(model, generator)
    match generator.randrange(4):
        case 0:
            tensor.quantization = None
        case 1:
            tensor.quantization = _choose_tensor(model, generator).quantization
        case 2:
            made = schema.QuantizationParametersT()
            made.scale = np.array([generator.choice((0.05, 1 / 256, 1.0, *FLOATS))], np.float32)
            made.zeroPoint = np.array([generator.choice((0, 0, 3, -128, 128, *INTEGERS))])
            tensor.quantization = made
        case 3:
            old = tensor.quantization.scale
            tensor.quantization.scale = np.asarray(old) * np.float32(generator.choice(FLOATS))


def change_operand(model: Table, generator: random.Random) -> None:
    """Change or remove an operand of an operator, or swap two operands."""
    graph = _choose_graph(model, generator)
    operator = generator.choice(graph.operators)
    field = generator.choice(("inputs", "inputs", "inputs", "outputs"))
    indices = [*getattr(operator, field)]
    at = generator.randrange(len(indices))
    other = generator.randrange(len(indices))
    match generator.randrange(3):
        case 0:
            indices[at] = generator.randrange(-1, len(graph.tensors))
        case 1:
            indices[at], indices[other] = indices[other], indices[at]
        case 2:
            indices.insert(at, generator.randrange(-1, len(graph.tensors)))
    setattr(operator, field, np.array(indices, np.int32))


def change_element(model: Table, generator: random.Random) -> None:
    """Overwrite elements of a constant with numbers or with other elements."""
    buffers = [b for b in model.buffers if b.data is not None and len(b.data) >= 4]
    buffer = generator.choice(buffers)
    data = bytearray(bytes(buffer.data))
    for _ in range(generator.choice((1, 1, 2, 4))):
        at = generator.randrange(len(data) // 4) * 4
        number = struct.pack("<I", generator.choice(INTEGERS) & 0xFFFFFFFF)
        if generator.random() < 0.3:
            number = struct.pack("<f", generator.choice(FLOATS))
        data[at : at + 4] = number
    buffer.data = np.frombuffer(bytes(data), np.uint8)


def change_buffer(model: Table, generator: random.Random) -> None:
    """Change the buffer of a tensor: that of another tensor, none, or new data."""
    tensor, other = _choose_tensor(model, generator), _choose_tensor(model, generator)
    match generator.randrange(3):
        case 0:
            tensor.buffer = other.buffer
        case 1:
            tensor.buffer = 0
        case 2:
            size = generator.choice((4, 8, 16, 64, 256))
            content = bytes(generator.choices(range(256), k=size))
            model.buffers.append(schema.BufferT(data=np.frombuffer(content, np.uint8)))
            tensor.buffer = len(model.buffers) - 1


def change_ports(model: Table, generator: random.Random) -> None:
    """Change the inputs or outputs of a graph to other tensors."""
    graph = _choose_graph(model, generator)
    field = generator.choice(("inputs", "outputs"))
    indices = [*getattr(graph, field)]
    match generator.randrange(3):
        case 0:
            indices.append(generator.randrange(len(graph.tensors)))
        case 1:
            indices.pop(generator.randrange(len(indices)))
        case 2:
            generator.shuffle(indices)
    setattr(graph, field, np.array(indices, np.int32))


def repeat_operator(model: Table, generator: random.Random) -> None:
    """Let an operator read its own output, run twice, or run at another position."""
    graph = _choose_graph(model, generator)
    operator = generator.choice(graph.operators)
    match generator.randrange(3):
        case 0:
            graph.operators.append(_copy(operator, inputs=operator.outputs))
        case 1:
            graph.operators.append(operator)
        case 2:
            generator.shuffle(graph.operators)


def _copy(table: Table, **fields: Any) -> Table:
    made = type(table)()
    for name, value in {**vars(table), **fields}.items():
        setattr(made, name, value)
    return made


def append_operator(model: Table, generator: random.Random) -> None:
    """Append another operator that reads tensors of the graph, and writes a new output."""
    graph = _choose_graph(model, generator)
    number = generator.randrange(_LAST_CODE + 1)
    code = schema.OperatorCodeT(builtinCode=number, deprecatedBuiltinCode=min(number, 127))
    model.operatorCodes.append(code)
    made, tensors = schema.OperatorT(), len(graph.tensors)
    made.opcodeIndex = len(model.operatorCodes) - 1
    count = generator.choice((1, 1, 2, 2, 3))
    inputs: Sequence[int] = [generator.randrange(tensors) for _ in range(count)]
    graph.tensors.append(_copy(graph.tensors[generator.choice(inputs)], buffer=0))
    made.inputs, made.outputs = np.array(inputs, np.int32), np.array([tensors], np.int32)
    graph.operators.append(made)
    graph.outputs = np.array([*graph.outputs, tensors], np.int32)


CHANGES = (
    change_operator,
    change_type,
    change_size,
    change_rank,
    make_size_dynamic,
    change_scale,
    change_operand,
    change_element,
    change_buffer,
    change_ports,
    repeat_operator,
    append_operator,
)
