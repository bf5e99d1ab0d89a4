"""A TFLite flatbuffer as a `Model`; the only module that knows `tflite` and `flatbuffers`.

The file is memory-mapped and constants are views on it. Published files break many a rule, so:

1. an operator's code is the larger of its old (one byte) and its new code field;
2. a buffer may lie in the flatbuffer, or behind it at an offset (files over 2 GB);
3. an operator's options may stand in either of two tables, or be missing altogether;
4. tensors may have no name, or another's; the graph's inputs and outputs keep theirs first;
5. -1 is an absent input.

Nothing read here is trusted: whatever an honest file could not say ends as `ModelFileError`.
"""

from __future__ import annotations

import mmap
import os
import re
import struct
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

import numpy as np
import tflite
from flatbuffers import flexbuffers, number_types

from tflite2onnx.errors import ModelFileError
from tflite2onnx.graph import Graph, Model, Op, Options, Signature
from tflite2onnx.tensor import Array, DType, Quantization, SparseAxis, Sparsity, Tensor

_IDENTIFIER = b"TFL3"
# Types that are younger than the schema of the `tflite` package.
_NEW_TYPES = {19: "INT2", 20: "UINT4", 21: "FLOAT8_E4M3FN", 22: "FLOAT8_E5M2"}
_NEW_CODES = {209: "STABLEHLO_CASE"}
_NEW_CODE_SLOT = 10  # of OperatorCode.builtin_code in its table's vtable
_BLOCKWISE = 2  # QuantizationDetails.BlockwiseQuantization, likewise
_ENUMERATIONS = {
    "fused_activation_function": tflite.ActivationFunctionType,
    "padding": tflite.Padding,
    "mode": tflite.MirrorPadMode,
    "weights_format": tflite.FullyConnectedOptionsWeightsFormat,
}
_MAX_FLEX_VALUES = 100_000
# What the flatbuffers runtime raises on bytes that are no flatbuffer.
_GARBAGE = (
    struct.error, IndexError, ValueError, TypeError, OverflowError, AttributeError, MemoryError,
)  # fmt: skip


def _names(enumeration: type) -> dict[int, str]:
    return {v: k for k, v in vars(enumeration).items() if isinstance(v, int)}


_CODES = _names(tflite.BuiltinOperator) | _NEW_CODES
_TYPES = _names(tflite.TensorType) | _NEW_TYPES
_OPTIONS = _names(tflite.BuiltinOptions)
_OPTIONS_2 = _names(tflite.BuiltinOptions2)


def read(source: str | os.PathLike[str] | bytes) -> Model:
    """Read a model from a path or from the bytes of a file.

    Raises:
        ModelFileError: the file is missing, empty, truncated, or not a TFLite model.
    """
    data = memoryview(source) if isinstance(source, (bytes, bytearray)) else _map(source)
    _check_identifier(data)
    try:
        return _Reader(data).model()
    except ModelFileError:
        raise
    except _GARBAGE as error:
        message = f"the TFLite model is truncated or damaged ({type(error).__name__}: {error})"
        raise ModelFileError(message) from error


def _map(path: str | os.PathLike[str]) -> memoryview:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - the path may be any os.PathLike
            if os.fstat(file.fileno()).st_size == 0:
                message = f"{os.fspath(path)} is empty"
                raise ModelFileError(message)
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        message = f"cannot read {os.fspath(path)}: {reason}"
        raise ModelFileError(message) from error


def _check_identifier(data: memoryview) -> None:
    if bytes(data[4:8]) == _IDENTIFIER:
        return
    if bytes(data[:4]) == b"PK\x03\x04":
        message = "this is a zip archive (a .task bundle?), not a TFLite model: unpack it first"
    elif len(data) < 8:  # noqa: PLR2004 - offset of the root table, then the identifier
        message = "the file is truncated: too short to hold a TFLite model"
    else:
        message = "this is not a TFLite model (the identifier TFL3 is missing)"
    raise ModelFileError(message)


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


@cache
def _fields(table: type) -> tuple[tuple[str, str, bool], ...]:
    """Return (name in snake_case, accessor, is a vector) of each field of a generated class."""
    methods = [m for m in vars(table) if not re.match(r"_|Init$|GetRootAs|.*BufferHasIdent", m)]
    bases = [m for m in methods if not re.search(r"(AsNumpy|Length|IsNone)$", m)]
    return tuple((_snake(m), m, m + "Length" in methods) for m in bases)


def flexbuffer(data: bytes) -> Any:  # noqa: ANN401 - a flexbuffer holds any JSON-like value
    """Decode a flexbuffer to dicts, lists and scalars.

    Values may share children, so that a few bytes can stand for billions of values: the number
    of values is bounded. Raises ModelFileError for that and for damaged data.
    """
    left = _MAX_FLEX_VALUES

    def value(ref: Any) -> Any:  # noqa: ANN401
        nonlocal left
        left -= 1
        if left < 0:
            message = "the custom options are damaged: too many values"
            raise ModelFileError(message)
        if ref.IsMap:
            items = ref.AsMap
            if len(items) > left:
                left = 0
            return {k.AsKey: value(v) for k, v in zip(items.Keys, items.Values, strict=False)}
        if ref.IsVector or ref.IsTypedVector or ref.IsFixedTypedVector:
            kind = "" if ref.IsVector else "Typed" if ref.IsTypedVector else "FixedTyped"
            items = getattr(ref, f"As{kind}Vector")
            if len(items) > left:
                left = 0
            return [value(v) for v in items]
        return ref.Value

    try:
        return value(flexbuffers.GetRoot(data))
    except (*_GARBAGE, RecursionError) as error:
        message = f"the custom options are damaged ({error})"
        raise ModelFileError(message) from error


class _Reader:
    """Decodes one file; holds what its parts refer to."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        # Every entry of a vector takes four bytes of an honest file; a file in which vectors are
        # shared could otherwise ask for more objects than memory holds.
        self._budget = len(data)
        root = tflite.Model.GetRootAs(data, 0)
        self._root = root
        codes = self._all(root.OperatorCodes, root.OperatorCodesLength)
        self._codes = [self._code(code) for code in codes]

    def model(self) -> Model:
        root = self._root
        graphs = tuple(self._graph(g) for g in self._all(root.Subgraphs, root.SubgraphsLength))
        if not graphs:
            message = "the TFLite model has no subgraph"
            raise ModelFileError(message)
        signatures = tuple(
            self._signature(s, graphs)
            for s in self._all(root.SignatureDefs, root.SignatureDefsLength)
        )
        metadata = {
            _text(entry.Name()): bytes(self._buffer(entry.Buffer()))
            for entry in self._all(root.Metadata, root.MetadataLength)
        }
        return Model(graphs, signatures, metadata, _text(root.Description()), root.Version())

    def _all(self, get: Callable[[int], Any], length: Callable[[], int]) -> Iterator[Any]:
        count = length()
        self._budget -= 4 * count
        if self._budget < 0:
            message = "the TFLite model is damaged: it lists more parts than it has room for"
            raise ModelFileError(message)
        return (get(i) for i in range(count))

    def _code(self, code: Any) -> tuple[str, bool, int]:  # noqa: ANN401 - a generated class
        number = max(code.DeprecatedBuiltinCode(), _new_code(code))
        name = _CODES.get(number, f"operator code {number}")
        if name == "CUSTOM":
            return _text(code.CustomCode()), True, code.Version()
        return name, False, code.Version()

    def _buffer(self, index: int) -> memoryview:
        if index == 0:
            return self._data[:0]
        if not 0 < index < self._root.BuffersLength():
            message = f"the TFLite model is damaged: there is no buffer {index}"
            raise ModelFileError(message)
        buffer = self._root.Buffers(index)
        if buffer.Offset() > 1:
            return self._outside(buffer.Offset(), buffer.Size())
        return memoryview(buffer.DataAsNumpy()) if buffer.DataLength() else self._data[:0]

    def _outside(self, offset: int, size: int) -> memoryview:
        if offset + size > len(self._data):
            message = "the TFLite model is truncated: a buffer lies behind the end of the file"
            raise ModelFileError(message)
        return self._data[offset : offset + size]

    def _graph(self, table: Any) -> Graph:  # noqa: ANN401 - a generated class
        inputs, outputs = _ints(table, "Inputs"), _ints(table, "Outputs")
        tables = list(self._all(table.Tensors, table.TensorsLength))
        names = _unique([_text(t.Name()) for t in tables], (*inputs, *outputs))
        tensors = tuple(self._tensor(t, n) for t, n in zip(tables, names, strict=True))
        ops = tuple(
            self._op(i, op, tensors)
            for i, op in enumerate(self._all(table.Operators, table.OperatorsLength))
        )
        return Graph(
            _text(table.Name()),
            tuple(_at(tensors, i, "an input of the graph") for i in inputs),
            tuple(_at(tensors, i, "an output of the graph") for i in outputs),
            ops,
            tensors,
        )

    def _op(self, index: int, table: Any, tensors: tuple[Tensor, ...]) -> Op:  # noqa: ANN401
        code, custom, version = _at(self._codes, table.OpcodeIndex(), f"operator {index}'s code")
        where = f"a tensor of {code} (operator {index})"

        def pick(field: str) -> tuple[Tensor | None, ...]:
            numbers = _ints(table, field)
            self._budget -= 4 * len(numbers)
            return tuple(None if i == -1 else _at(tensors, i, where) for i in numbers)

        return Op(
            code, index, pick("Inputs"),
            tuple(t for t in pick("Outputs") if t is not None),
            self._options(table), custom, self._custom_options(table),
            tuple(t for t in pick("Intermediates") if t is not None), version,
        )  # fmt: skip

    def _options(self, table: Any) -> Options:  # noqa: ANN401 - a generated class
        for kinds, kind, get in (
            (_OPTIONS, table.BuiltinOptionsType(), table.BuiltinOptions),
            (_OPTIONS_2, table.BuiltinOptions2Type(), table.BuiltinOptions2),
        ):
            union, cls = get(), getattr(tflite, kinds.get(kind, ""), None)
            if kind and union is not None and cls is not None:
                options = cls()
                options.Init(union.Bytes, union.Pos)
                return Options({n: _field(options, n, a, v) for n, a, v in _fields(cls)})
        return Options()

    def _custom_options(self, table: Any) -> bytes:  # noqa: ANN401 - a generated class
        if table.LargeCustomOptionsOffset() > 1:
            offset, size = table.LargeCustomOptionsOffset(), table.LargeCustomOptionsSize()
            return bytes(self._outside(offset, size))
        return bytes(table.CustomOptionsAsNumpy()) if table.CustomOptionsLength() else b""

    def _tensor(self, table: Any, name: str) -> Tensor:  # noqa: ANN401 - a generated class
        shape = _ints(table, "Shape")
        if min(shape, default=0) < 0:
            message = f"tensor {name} has the shape {list(shape)}"
            raise ModelFileError(message)
        kind = table.Type()
        if kind not in _TYPES:
            message = f"tensor {name} has an element type that is not known ({kind})"
            raise ModelFileError(message)
        dtype, sparsity = DType[_TYPES[kind]], self._sparsity(table.Sparsity())
        raw = self._buffer(table.Buffer())
        return Tensor(
            name, shape, dtype,
            _elements(raw, name, shape, dtype, sparse=sparsity is not None) if len(raw) else None,
            _quantization(table.Quantization()), _ints(table, "ShapeSignature"),
            bool(table.IsVariable()), sparsity,
        )  # fmt: skip

    def _sparsity(self, table: Any) -> Sparsity | None:  # noqa: ANN401 - a generated class
        if table is None:
            return None
        axes = tuple(
            SparseAxis(
                axis.DenseSize(),
                *(
                    _index_vector(kind, union)
                    for kind, union in (
                        (axis.ArraySegmentsType(), axis.ArraySegments()),
                        (axis.ArrayIndicesType(), axis.ArrayIndices()),
                    )
                ),
            )
            for axis in self._all(table.DimMetadata, table.DimMetadataLength)
        )
        return Sparsity(_ints(table, "TraversalOrder"), _ints(table, "BlockMap"), axes)

    def _signature(self, table: Any, graphs: tuple[Graph, ...]) -> Signature:  # noqa: ANN401
        key, index = _text(table.SignatureKey()), table.SubgraphIndex()
        tensors = _at(graphs, index, f"the subgraph of signature {key}").tensors

        def named(maps: Iterable[Any]) -> dict[str, Tensor]:
            return {
                _text(m.Name()): _at(tensors, m.TensorIndex(), f"a tensor of signature {key}")
                for m in maps
            }

        return Signature(
            key, index,
            named(self._all(table.Inputs, table.InputsLength)),
            named(self._all(table.Outputs, table.OutputsLength)),
        )  # fmt: skip


def _new_code(code: Any) -> int:  # noqa: ANN401 - a generated class
    """Return the new code field as it is in the file.

    `BuiltinCode()` gives the old field in its place wherever the new one is under 127, but some
    files have only the new one.
    """
    table = code._tab  # noqa: SLF001 - there is no other way to the field itself
    offset = table.Offset(_NEW_CODE_SLOT)
    return int(table.Get(number_types.Int32Flags, offset + table.Pos)) if offset else 0


def _at(items: Any, index: int, what: str) -> Any:  # noqa: ANN401 - a tuple of anything
    if not 0 <= index < len(items):
        message = f"the TFLite model is damaged: {what} has the index {index} of {len(items)}"
        raise ModelFileError(message)
    return items[index]


def _text(raw: bytes | None) -> str:
    return (raw or b"").decode("utf-8", "replace")


def _ints(table: Any, field: str) -> tuple[int, ...]:  # noqa: ANN401 - a generated class
    if getattr(table, field + "IsNone")():
        return ()
    return tuple(getattr(table, field + "AsNumpy")().tolist())


def _field(table: Any, name: str, accessor: str, vector: bool) -> Any:  # noqa: ANN401, FBT001
    if vector:
        if hasattr(table, accessor + "AsNumpy"):
            return _ints(table, accessor)
        return ()
    value = getattr(table, accessor)()
    if name in _ENUMERATIONS:
        return _names(_ENUMERATIONS[name]).get(value, str(value))
    return _text(value) if isinstance(value, bytes) else value


def _elements(
    raw: memoryview, name: str, shape: tuple[int, ...], dtype: DType, *, sparse: bool
) -> Array:
    """Return a constant's elements as a view (types under eight bits are unpacked)."""
    if dtype.numpy is None:
        return np.frombuffer(raw, np.uint8)
    if dtype.bits < 8:  # noqa: PLR2004 - a byte
        flat = _unpack(np.frombuffer(raw, np.uint8), dtype)
    else:
        flat = np.frombuffer(raw[: len(raw) // (dtype.bits // 8) * (dtype.bits // 8)], dtype.numpy)
    if sparse:
        return flat
    count = 1
    for size in shape:
        count *= size
    expected = -(-count * dtype.bits // 8)
    if len(raw) != expected:
        message = f"tensor {name} needs {expected} bytes of data and the file holds {len(raw)}"
        raise ModelFileError(message)
    return flat[:count].reshape(shape)


def _unpack(raw: Array, dtype: DType) -> Array:
    """Return elements of two or four bits, first element in the lowest bits, as int8 or uint8."""
    shifts = np.arange(0, 8, dtype.bits, dtype=np.uint8)
    fields = (raw[:, None] >> shifts) & (2**dtype.bits - 1)
    if dtype.label.startswith("int"):
        sign = np.int8(8 - dtype.bits)
        fields = (fields << sign).astype(np.int8) >> sign
    return np.asarray(fields.reshape(-1), dtype.numpy)


def _quantization(table: Any) -> Quantization | None:  # noqa: ANN401 - a generated class
    if table is None:
        return None
    if table.DetailsType() == _BLOCKWISE:
        return None
    if not table.ScaleLength():
        return None
    scale = np.array(table.ScaleAsNumpy(), np.float32)
    zero = np.zeros(scale.size, np.int64)
    if table.ZeroPointLength():
        zero = np.broadcast_to(table.ZeroPointAsNumpy(), scale.shape)
    return Quantization(scale, zero, table.QuantizedDimension())


def _index_vector(kind: int, union: Any) -> Array | None:  # noqa: ANN401 - a union's table
    cls = getattr(tflite, _names(tflite.SparseIndexVector).get(kind, ""), None)
    if not kind or union is None or cls is None:
        return None
    table = cls()
    table.Init(union.Bytes, union.Pos)
    return np.asarray(table.ValuesAsNumpy()) if table.ValuesLength() else np.zeros(0, np.int32)


def _unique(names: list[str], first: Iterable[int]) -> list[str]:
    """Make names unique, those at the indices `first` being the first to choose."""
    taken: set[str] = set()
    chosen: dict[int, str] = {}
    for i in (*first, *range(len(names))):
        if i in chosen or not 0 <= i < len(names):
            continue
        name, count = names[i] or f"tensor_{i}", 0
        while name in taken:
            count += 1
            name = f"{names[i] or 'tensor'}_{i}" + (f"_{count}" if count > 1 else "")
        taken.add(name)
        chosen[i] = name
    return [chosen[i] for i in range(len(names))]



