"""A large TFLite model whose weights a converter only has to copy."""

import usage  # noqa: F401 - packages may be missing

import random
from importlib import import_module
from pathlib import Path

_COLUMNS = 4096
_ROWS = 4096  # the largest number of rows of a matrix
_ALIGNMENT = 16
_PIECE = 1 << 20


def write_large_model(path: Path, size: int) -> None:
    """Write a model of FULLY_CONNECTED operators with `size` bytes of float32 weights.

    The weights are stored after the flatbuffer, and are written in pieces, so that they are never
    in memory.
    """
    schema = import_module("ai_edge_litert.schema_py_generated")
    rows = [_ROWS] * (size // (4 * _COLUMNS * _ROWS))
    rest = (size - sum(4 * _COLUMNS * each for each in rows)) // (4 * _COLUMNS)
    rows += [rest] if rest else []
    start = _pack(schema, rows, 1)
    start += bytes(-len(start) % _ALIGNMENT)
    generator = random.Random(0)  # noqa: S311 - no secret
    with path.open("wb") as file:
        file.write(_pack(schema, rows, len(start)).ljust(len(start), b"\0"))
        for count in rows:
            left = 4 * _COLUMNS * count
            while left:
                piece = generator.randbytes(min(left, _PIECE))
                # The exponents of all elements become moderate, so that no element is NaN.
                file.write(piece.translate(_MODERATE))
                left -= len(piece)


_MODERATE = bytes(i & 0x3F for i in range(256))


def _pack(schema, rows: list[int], offset: int) -> bytes:  # noqa: ANN001 - a module
    """Return the flatbuffer for weights at an offset of the file."""
    floats = schema.TensorType.FLOAT32
    tensors = [schema.TensorT([1, _COLUMNS], floats, 0, "x")]
    buffers, operators = [schema.BufferT()], []
    code = schema.BuiltinOperator.FULLY_CONNECTED
    for i, count in enumerate(rows):
        size = 4 * _COLUMNS * count
        buffers.append(schema.BufferT(None, offset, size))
        offset += size
        tensors.append(schema.TensorT([count, _COLUMNS], floats, i + 1, f"weights_{i}"))
        tensors.append(schema.TensorT([1, count], floats, 0, f"y_{i}"))
        operator = schema.OperatorT(0, [0, 2 * i + 1, -1], [2 * i + 2])
        operator.builtinOptionsType = schema.BuiltinOptions.FullyConnectedOptions
        operator.builtinOptions = schema.FullyConnectedOptionsT()
        operators.append(operator)
    outputs = range(2, len(tensors), 2)
    model = schema.ModelT(
        version=3,
        operatorCodes=[schema.OperatorCodeT(code, builtinCode=code)],
        subgraphs=[schema.SubGraphT(tensors, [0], list(outputs), operators)],
        buffers=buffers,
    )
    builder = import_module("flatbuffers").Builder()
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())
