"""A TFLite flatbuffer as a `Model`; the only module that knows `tflite` and its flatbuffers.

The file is memory-mapped and constants are views on it. Published files break many a rule, so:

1. an operator's code is the larger of its old (one byte) and its new code field;
2. a buffer may lie in the flatbuffer, or behind it at an offset (files over 2 GB);
3. an operator's options may stand in either of two tables, in a flexbuffer if it is a custom
   one, or be missing altogether;
4. tensors may have no name, or another's; the graph's inputs and outputs keep theirs first;
5. a tensor without elements may have no buffer, and is constant if nothing computes it;
6. -1 is an absent input.

Nothing read here is trusted: whatever an honest file could not say ends as `ModelFileError`.
"""

from __future__ import annotations

import mmap
import os
import re
import stat
import struct
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import count
from typing import Any, NoReturn

import numpy as np
import tflite
from flatbuffers import number_types
from flatbuffers.table import Table as SlowTable

from tflite2onnx import elements, flexbuffer
from tflite2onnx.errors import ModelFileError
from tflite2onnx.graph import Graph, Model, Op, Options, Signature, fault
from tflite2onnx.tensor import Array, DType, Quantization, Shape, SparseAxis, Sparsity, Tensor

_IDENTIFIER = b"TFL3"
# What is younger than the schema of the `tflite` package, where fields are told by their slots.
_NEW_TYPES = {19: "INT2", 20: "UINT4", 21: "FLOAT8_E4M3FN", 22: "FLOAT8_E5M2"}
_NEW_CODES = {209: "STABLEHLO_CASE"}
_BLOCKWISE, _MULTI_AXIS = 2, 3  # of QuantizationDetails
_SCALES, _ZERO_POINTS, _BLOCK_SIZE = 4, 6, 8  # of BlockwiseQuantization
_BUILTIN_CODE = 10  # of OperatorCode
_EXTERNAL_BUFFER = 24  # of Tensor
_ENUMERATIONS = {
    "fused_activation_function": tflite.ActivationFunctionType,
    "padding": tflite.Padding,
    "mode": tflite.MirrorPadMode,
    "weights_format": tflite.FullyConnectedOptionsWeightsFormat,
}
_MOST_AXES = 32  # what every numpy can do; the kernels stop far earlier
_MOST_BYTES = 1 << 62  # of a tensor; more would not fit into the integers that hold its size
_MOST_FIELDS_SIZE = 256  # bytes of a table's list of fields; a few dozen are in use
_TABLE = 8  # bytes that a table takes at least: the offset to it, and from it to its fields
# What the flatbuffers runtime raises on bytes that are no flatbuffer.
_GARBAGE = (
    struct.error, IndexError, ValueError, TypeError, OverflowError, AttributeError, MemoryError,
)  # fmt: skip

Table = Any  # an object of the generated classes, which have no types


class _Fields(SlowTable):  # type: ignore[misc]  # the library has no types
    """A table that reads where its fields are once, and not again for each of them."""

    __slots__ = ("_places",)

    def __init__(self, data: memoryview, position: int) -> None:
        super().__init__(data, position)
        start = position - self.Get(number_types.SOffsetTFlags, position)
        size = min(self.Get(number_types.VOffsetTFlags, start), _MOST_FIELDS_SIZE)
        self._places = struct.unpack_from(f"<{size // 2}H", data, start)

    def Offset(self, slot: int) -> int:  # noqa: N802 - the library's name
        return self._places[slot // 2] if slot // 2 < len(self._places) else 0

    def Get(self, flags: Any, offset: int) -> Any:  # noqa: N802, ANN401 - likewise
        if offset < 0:
            message = f"the offset {offset} lies before the file"
            raise ValueError(message)
        return flags.packer_type.unpack_from(self.Bytes, offset)[0]


def _quick(table: Table) -> Table:
    """Return an object of a generated class that reads as `_Fields` does."""
    table._tab = _Fields(table._tab.Bytes, table._tab.Pos)  # noqa: SLF001 - there is no other way
    return table


def _names(enumeration: type) -> dict[int, str]:
    return {v: k for k, v in vars(enumeration).items() if isinstance(v, int)}


_CODES = _names(tflite.BuiltinOperator) | _NEW_CODES
_TYPES = _names(tflite.TensorType) | _NEW_TYPES
_OPTIONS = _names(tflite.BuiltinOptions)
_OPTIONS_2 = _names(tflite.BuiltinOptions2)
_INDEX_VECTORS = _names(tflite.SparseIndexVector)


def read(source: str | os.PathLike[str] | bytes) -> Model:
    """Read a model from a path or from the bytes of a file.

    Raises:
        ModelFileError: the file is missing, empty, truncated, or not a TFLite model.
    """
    if isinstance(source, (str, os.PathLike)):
        data = _map(source)
    else:
        data = memoryview(source).toreadonly().cast("B")
    _check_identifier(data)
    try:
        return _Reader(data).model()
    except _GARBAGE as error:
        message = f"the TFLite model is truncated or damaged ({type(error).__name__}: {error})"
        raise ModelFileError(message) from error


def _map(path: str | os.PathLike[str]) -> memoryview:
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116 - the path may be any PathLike
            message = f"cannot read {os.fspath(path)}: it is no regular file"
            raise ModelFileError(message)
        with open(path, "rb") as file:  # noqa: PTH123 - likewise
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


def _damaged(reason: str) -> NoReturn:
    message = f"the TFLite model is damaged: {reason}"
    raise ModelFileError(message)


class _Reader:
    """Decodes one file; holds what its parts refer to."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        # Parts of a flatbuffer can be shared, so that a small file could list more of them than
        # memory holds. An honest one says nothing twice, or little.
        self._left = 2 * len(data)
        self._flat: dict[tuple[int, DType], Array] = {}
        self._root = _quick(tflite.Model.GetRootAs(data, 0))
        tables = self._all(self._root, "OperatorCodes")
        self._codes = [self._code(code) for code in tables]

    def model(self) -> Model:
        graphs = tuple(self._graph(g) for g in self._all(self._root, "Subgraphs"))
        if not graphs:
            _damaged("it has no subgraph")
        return Model(
            graphs,
            tuple(self._signature(s, graphs) for s in self._all(self._root, "SignatureDefs")),
            dict(self._metadata(entry) for entry in self._all(self._root, "Metadata")),
            self._text(self._root.Description()),
            self._root.Version(),
        )

    # Fields

    def _spend(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            _damaged("it lists more than it has room for")

    def _all(self, table: Table, field: str) -> list[Table]:
        length = getattr(table, field + "Length")()
        self._spend(_TABLE * length)
        return [_quick(getattr(table, field)(i)) for i in range(length)]

    def _text(self, raw: bytes | None) -> str:
        self._spend(len(raw or b""))
        return (raw or b"").decode("utf-8", "replace")

    def _numbers(self, table: Table, field: str) -> tuple[Any, ...]:
        if getattr(table, field + "IsNone")():
            return ()
        numbers = getattr(table, field + "AsNumpy")()
        self._spend(numbers.nbytes)
        return tuple(numbers.tolist())

    def _bytes(self, raw: memoryview) -> bytes:
        self._spend(len(raw))
        return bytes(raw)

    # Parts

    def _code(self, code: Table) -> tuple[str, bool, int]:
        # `BuiltinCode()` gives the old field in place of a new one under 127, but some files have
        # only the new one.
        number = max(code.DeprecatedBuiltinCode(), _number(code._tab, _BUILTIN_CODE))  # noqa: SLF001
        name = _CODES.get(number, f"operator code {number}")
        if name == "CUSTOM":
            return self._text(code.CustomCode()), True, code.Version()
        return name, False, code.Version()

    def _metadata(self, entry: Table) -> tuple[str, bytes]:
        return self._text(entry.Name()), self._bytes(self._buffer(entry.Buffer()))

    def _buffer(self, index: int) -> memoryview:
        """Return what a buffer holds; nothing if it holds nothing, as number 0 never does."""
        if index == 0:
            return self._data[:0]
        if index >= self._root.BuffersLength():
            _damaged(f"there is no buffer {index}")
        buffer = _quick(self._root.Buffers(index))
        if buffer.DataLength():
            return memoryview(buffer.DataAsNumpy())
        return self._outside(buffer.Offset(), buffer.Size())

    def _outside(self, offset: int, size: int) -> memoryview:
        if offset <= 1:  # what stands there when there is no such place
            return self._data[:0]
        if offset + size > len(self._data):
            message = "the TFLite model is truncated: a buffer lies behind the end of the file"
            raise ModelFileError(message)
        return self._data[offset : offset + size]

    def _graph(self, table: Table) -> Graph:
        inputs, outputs = self._numbers(table, "Inputs"), self._numbers(table, "Outputs")
        tables, ops = self._all(table, "Tensors"), self._all(table, "Operators")
        reads = [self._numbers(op, "Inputs") for op in ops]
        writes = [self._numbers(op, "Outputs") for op in ops]
        names = _unique([self._text(t.Name()) for t in tables], (*inputs, *outputs))
        computed = {*inputs, *(i for each in writes for i in each)}
        tensors = tuple(
            self._tensor(tables, i, name, computed=i in computed) for i, name in enumerate(names)
        )
        graph = Graph(
            self._text(table.Name()),
            _pick(tensors, inputs, "an input of the graph"),
            _pick(tensors, outputs, "an output of the graph"),
            tuple(self._op(i, op, tensors, reads[i], writes[i]) for i, op in enumerate(ops)),
            tensors,
        )
        if wrong := fault(graph):
            _damaged(wrong)
        return graph

    def _op(
        self, index: int, table: Table, tensors: Sequence[Tensor], reads: Shape, writes: Shape
    ) -> Op:
        code, custom, version = _at(self._codes, table.OpcodeIndex(), f"operator {index}'s code")
        where = f"a tensor of {code} (operator {index})"
        raw = self._custom_options(table)
        return Op(
            code, index,
            tuple(None if i == -1 else _at(tensors, i, where) for i in reads),
            _pick(tensors, writes, where),
            Options(_map_of(raw)) if custom else self._options(table),
            custom, raw,
            _pick(tensors, self._numbers(table, "Intermediates"), where),
            version,
        )  # fmt: skip

    def _options(self, table: Table) -> Options:
        for kinds, kind, get in (
            (_OPTIONS, table.BuiltinOptionsType(), table.BuiltinOptions),
            (_OPTIONS_2, table.BuiltinOptions2Type(), table.BuiltinOptions2),
        ):
            options = _union(kinds, kind, get())
            if options is not None:
                fields = _fields(options.__class__)
                return Options({n: self._field(options, n, a, vector=v) for n, a, v in fields})
        return Options()

    def _field(self, table: Table, name: str, accessor: str, *, vector: bool) -> Any:  # noqa: ANN401
        if name == "composite_attributes":
            return _map_of(bytes(self._numbers(table, accessor)))
        if vector:
            return self._numbers(table, accessor) if hasattr(table, accessor + "AsNumpy") else ()
        value = getattr(table, accessor)()
        if name in _ENUMERATIONS:
            return _names(_ENUMERATIONS[name]).get(value, str(value))
        return self._text(value) if isinstance(value, bytes) else value

    def _custom_options(self, table: Table) -> bytes:
        if table.CustomOptionsLength():
            return self._bytes(memoryview(table.CustomOptionsAsNumpy()))
        place = table.LargeCustomOptionsOffset(), table.LargeCustomOptionsSize()
        return self._bytes(self._outside(*place))

    def _tensor(self, tables: Sequence[Table], index: int, name: str, *, computed: bool) -> Tensor:
        table = tables[index]
        shape, kind = self._numbers(table, "Shape"), table.Type()
        if kind not in _TYPES:
            message = f"tensor {name} has an element type that is not known ({kind})"
            raise ModelFileError(message)
        dtype = DType[_TYPES[kind]]
        wrong = min(shape, default=0) < 0 or len(shape) > _MOST_AXES
        if wrong or elements.nbytes(shape, dtype) > _MOST_BYTES:
            message = f"tensor {name} has the shape {list(shape)[:_MOST_AXES]}"
            raise ModelFileError(message)
        if _number(table._tab, _EXTERNAL_BUFFER, number_types.Uint32Flags):  # noqa: SLF001
            message = f"the elements of tensor {name} lie in another file, which is not supported"
            raise ModelFileError(message)
        sparsity = self._sparsity(table.Sparsity())
        try:
            data = self._elements(table, shape, dtype, sparse=sparsity is not None)
            if data is None and 0 in shape and not computed and dtype.numpy is not None:
                data = np.empty(shape, dtype.numpy)
            quantization = self._quantization(table.Quantization(), shape, dtype, tables)
        except elements.ElementsError as error:
            _damaged(f"tensor {name}: {error}")
        return Tensor(
            name, shape, dtype, data, quantization, self._numbers(table, "ShapeSignature"),
            bool(table.IsVariable()), sparsity,
        )  # fmt: skip

    def _elements(self, table: Table, shape: Shape, dtype: DType, *, sparse: bool) -> Array | None:
        """Return a constant's elements, None if the file holds none."""
        key = (table.Buffer(), dtype)
        if key not in self._flat:
            raw = self._buffer(table.Buffer())
            if not len(raw) or dtype in (DType.RESOURCE, DType.VARIANT):
                return None
            self._flat[key] = elements.flat(raw, dtype)
        return self._flat[key] if sparse else elements.shaped(self._flat[key], shape)

    def _sparsity(self, table: Table) -> Sparsity | None:
        if table is None:
            return None
        axes = tuple(
            SparseAxis(
                axis.DenseSize(),
                _index_vector(axis.ArraySegmentsType(), axis.ArraySegments()),
                _index_vector(axis.ArrayIndicesType(), axis.ArrayIndices()),
            )
            for axis in self._all(table, "DimMetadata")
        )
        return Sparsity(
            self._numbers(table, "TraversalOrder"), self._numbers(table, "BlockMap"), axes
        )

    def _quantization(
        self, table: Table, shape: Shape, dtype: DType, tensors: Sequence[Table]
    ) -> Quantization | None:
        if table is None:
            return None
        if table.DetailsType() == _MULTI_AXIS:
            message = "its scales lie along several axes, which no kernel of TFLite reads"
            raise elements.ElementsError(message)
        if table.DetailsType() == _BLOCKWISE:
            return self._blockwise(table.Details(), shape, tensors)
        if not table.ScaleLength():
            return None
        scale = np.asarray(table.ScaleAsNumpy())
        zero = np.asarray(table.ZeroPointAsNumpy() if table.ZeroPointLength() else np.int64(0))
        axis = table.QuantizedDimension()
        if zero.size not in (1, scale.size):
            message = f"it has {scale.size} scales and {zero.size} zero points"
            raise elements.ElementsError(message)
        if scale.size > 1 and not (0 <= axis < len(shape) and shape[axis] == scale.size):
            message = f"it has {scale.size} scales along axis {axis} of {list(shape)}"
            raise elements.ElementsError(message)
        if dtype.is_integer and not elements.holds(dtype, zero):
            message = f"a zero point lies outside {dtype.label}"
            raise elements.ElementsError(message)
        return Quantization(
            scale, np.broadcast_to(zero, scale.shape), axis if scale.size > 1 else 0
        )

    def _blockwise(
        self, details: Table, shape: Shape, tensors: Sequence[Table]
    ) -> Quantization | None:
        """Return scales that are a tensor of their own, one for each block of the last axis."""
        if details is None:
            return None
        size = _number(details, _BLOCK_SIZE)
        if size <= 0 or not shape or shape[-1] % size:
            message = f"its last axis of {list(shape)} is not made of blocks of {size}"
            raise elements.ElementsError(message)
        blocks = (*shape[:-1], shape[-1] // size)
        scale = self._parameter(tensors, _number(details, _SCALES), blocks)
        index = _number(details, _ZERO_POINTS)
        zero = np.int64(0) if index == -1 else self._parameter(tensors, index, blocks)
        return Quantization(
            scale.astype(np.float32), np.broadcast_to(np.asarray(zero, np.int64), blocks),
            len(shape) - 1, size,
        )  # fmt: skip

    def _parameter(self, tensors: Sequence[Table], index: int, shape: Shape) -> Array:
        table = _at(tensors, index, "a tensor of scales or zero points")
        dtype = DType[_TYPES.get(table.Type(), "VARIANT")]
        data = self._elements(table, shape, dtype, sparse=False)
        if data is None or data.dtype.kind not in "fiu":
            message = "its scales or zero points are no constant numbers"
            raise elements.ElementsError(message)
        self._spend(data.nbytes)  # each tensor that has them gets a copy
        return data

    def _signature(self, table: Table, graphs: Sequence[Graph]) -> Signature:
        key, index = self._text(table.SignatureKey()), table.SubgraphIndex()
        tensors = _at(graphs, index, f"the subgraph of signature {key}").tensors

        def named(maps: Sequence[Table]) -> dict[str, Tensor]:
            where = f"a tensor of signature {key}"
            return {self._text(m.Name()): _at(tensors, m.TensorIndex(), where) for m in maps}

        inputs, outputs = self._all(table, "Inputs"), self._all(table, "Outputs")
        return Signature(key, index, named(inputs), named(outputs))


def _at(items: Any, index: int, what: str) -> Any:  # noqa: ANN401 - a sequence of anything
    if not 0 <= index < len(items):
        _damaged(f"{what} has the index {index} of {len(items)}")
    return items[index]


def _pick(tensors: Sequence[Tensor], indices: Iterable[int], what: str) -> tuple[Tensor, ...]:
    return tuple(_at(tensors, i, what) for i in indices if i != -1)


def _number(table: Table, slot: int, flags: type = number_types.Int32Flags) -> int:
    """Return a field that the generated classes do not know, 0 if it is not there."""
    offset = table.Offset(slot)
    return int(table.Get(flags, offset + table.Pos)) if offset else 0


def _union(kinds: dict[int, str], kind: int, union: Table) -> Table | None:
    """Return a union's table as an object of its class; None if it has none that is known."""
    cls = getattr(tflite, kinds.get(kind, ""), None)
    if not kind or union is None or cls is None:
        return None
    table = cls()
    table.Init(union.Bytes, union.Pos)
    return _quick(table)


def _index_vector(kind: int, union: Table) -> Array | None:
    table = _union(_INDEX_VECTORS, kind, union)
    if table is None:
        return None
    return np.asarray(table.ValuesAsNumpy()) if table.ValuesLength() else np.zeros(0, np.int32)


def _map_of(raw: bytes) -> dict[str, Any]:
    """Return the options that a flexbuffer holds; none if it is something else, as to the kernels.

    Some custom operators keep a C struct in place of a flexbuffer.
    """
    try:
        options = flexbuffer.decode(raw) if raw else {}
    except flexbuffer.FlexbufferError:
        return {}
    return options if isinstance(options, dict) else {}


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


@cache
def _fields(table: type) -> tuple[tuple[str, str, bool], ...]:
    """Return (name in snake_case, accessor, is a vector) of each field of a generated class."""
    methods = [m for m in vars(table) if not re.match(r"_|Init$|GetRootAs|.*BufferHasIdent", m)]
    bases = [m for m in methods if not re.search(r"(AsNumpy|Length|IsNone)$", m)]
    return tuple((_snake(m), m, m + "Length" in methods) for m in bases)


def _unique(names: Sequence[str], first: Iterable[int]) -> list[str]:
    """Make names unique, those at the indices `first` being the first to choose."""
    taken: set[str] = set()
    chosen: dict[int, str] = {}
    for i in dict.fromkeys((*(i for i in first if 0 <= i < len(names)), *range(len(names)))):
        wishes = (f"{names[i] or 'tensor'}_{i}" + (f"_{n}" if n else "") for n in count())
        name = names[i] if names[i] and names[i] not in taken else _free(wishes, taken)
        taken.add(name)
        chosen[i] = name
    return [chosen[i] for i in range(len(names))]


def _free(wishes: Iterable[str], taken: set[str]) -> str:
    return next(name for name in wishes if name not in taken)
