"""Read a TFLite file as a `Model`.

The file is memory-mapped and constants are views on it. Published files break many rules of the
format, so the reader accepts the following:

1. an operator's code is the larger of its old (one byte) and its new code field;
2. a buffer may be in the flatbuffer, after the flatbuffer at an offset (files over 2 GB), or in
   another file;
3. an operator's options may be in either of two tables, or in a flexbuffer if the operator is
   custom; they may be missing, or be the options of another operator, which no kernel reads;
4. tensors may have no name, or the name of another tensor; of tensors with the same name, an
   input or output of the graph keeps the name;
5. a tensor without elements may have no buffer, and is constant unless it is an input or computed;
6. the index -1 is an absent input.

The file is not trusted: contents that no valid file has raise `ModelFileError`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, count
from typing import Any, TypeVar, cast

import numpy as np

from tflite2onnx.errors import ModelFileError
from tflite2onnx.graph import NO_GRAPH, Graph, Model, Op, Options, Signature, explain_order
from tflite2onnx.reader import buffers, flexbuffer
from tflite2onnx.reader.flatbuffer import Table, TableReader, make_zero_fields, read_root
from tflite2onnx.reader.foreign_files import describe_foreign_file
from tflite2onnx.reader.schema import ENUMERATIONS, UNIONS
from tflite2onnx.reader.source import AnySource, ModelSource, open_source
from tflite2onnx.reader.stored_bytes import StoredBytes, expect_item, fail_damaged
from tflite2onnx.tensor import (
    MOST_AXES,
    Array,
    DType,
    Quantization,
    Shape,
    SparseAxis,
    Sparsity,
    Tensor,
)
from tflite2onnx.utils.mapped_files import find_address, release_memory

T = TypeVar("T")

_IDENTIFIER = b"TFL3"
_NAMES = {kind: dict(enumerate(names.split())) for kind, names in ENUMERATIONS.items()}
_CODES, _TYPES = _NAMES["BuiltinOperator"], _NAMES["TensorType"]
# Enumerations that the schema declares as integers, by table of options.
_ENUMERATIONS = {
    "fused_activation_function": "ActivationFunctionType",
    "padding": "Padding",
    "mode": "MirrorPadMode",
    "weights_format": "FullyConnectedOptionsWeightsFormat",
}
# Types whose scale may be invalid, because no kernel reads it: a bias is added to accumulators.
_ACCUMULATORS = (DType.INT32, DType.INT64)
# Enumerations for which kernels have an additional value 0, which means unknown.
_WITH_UNKNOWN = {"padding", "mode"}
# Tables of options whose name differs from the name of their operator.
_SHARED_TABLES = {
    "Conv3DOptions": "CONV_3D_TRANSPOSE",
    "L2NormOptions": "L2_NORMALIZATION",
    "MaximumMinimumOptions": "MAXIMUM MINIMUM",
    "Pool2DOptions": "AVERAGE_POOL_2D L2_POOL_2D MAX_POOL_2D",
    "RandomOptions": "MULTINOMIAL RANDOM_STANDARD_NORMAL RANDOM_UNIFORM",
    "ReducerOptions": "MEAN REDUCE_ALL REDUCE_ANY REDUCE_MAX REDUCE_MIN REDUCE_PROD SUM",
    "SequenceRNNOptions": "UNIDIRECTIONAL_SEQUENCE_RNN",
}
_SHARED = {code: kind for kind, codes in _SHARED_TABLES.items() for code in codes.split()}
_NAMED = {
    kind.upper().removesuffix("OPTIONS"): kind
    for union in ("BuiltinOptions", "BuiltinOptions2")
    for kind in UNIONS[union]
}
_COPIED_BYTES = 1 << 12  # A page: fewer elements take less memory than the page they are in.
_MOST_BYTES = 1 << 62  # The largest number of bytes of a tensor, which fit into an int64.
# The exceptions that bytes raise if they are not a flatbuffer.
_GARBAGE = (struct.error, IndexError, ValueError, TypeError, OverflowError)


def read_model(source: AnySource) -> Model:
    """Read a model from a path or from the bytes of a file.

    Raises:
        ModelFileError: the file is missing, empty, truncated, or not a TFLite model.
    """
    return _read_file(source, _ModelReader.read_whole_model)


def read_entry_point(source: AnySource, key: str | None) -> Model:
    """Read the sub-graphs that a signature runs; the others become empty.

    None is the main sub-graph. Variables and tables may be written in any sub-graph, so a model
    that has them is read as a whole. So is a model without this signature.

    Raises:
        ModelFileError: as above.
    """
    return _read_file(source, lambda reader: reader.read_entry_point(key))


def list_entry_points(source: AnySource) -> dict[str, int]:
    """Return the index of the sub-graph of each signature; errors as of `read_model`."""
    return _read_file(source, lambda reader: reader.entry_points)


def _read_file(source: AnySource, read: Callable[[_ModelReader], T]) -> T:
    opened = open_source(source)
    check_identifier(opened.data)
    try:
        result = read(_ModelReader(opened))
    except ModelFileError:  # a ValueError too
        raise
    except _GARBAGE as error:
        reason = f"{type(error).__name__}: {error}"
        if isinstance(error, struct.error):  # its text is about Python's buffers
            reason = f"it refers to a place outside of its {opened.data.nbytes:,} bytes"
        raise ModelFileError(f"the TFLite model is truncated or damaged ({reason})") from error
    release_memory(opened.data)  # a page of the file may contain a table and weights
    return result


def check_identifier(data: memoryview) -> None:
    """Raise ModelFileError unless a file begins as a TFLite model; the message names its kind."""
    if not is_model(data):
        raise ModelFileError(describe_foreign_file(data))


def is_model(data: memoryview) -> bool:
    """Return whether the bytes of a file begin as those of a TFLite model."""
    return bytes(data[4:8]) == _IDENTIFIER


class _ModelReader(TableReader):
    """Decodes one file; keeps the buffers and operator codes that tables refer to by index."""

    def __init__(self, source: ModelSource) -> None:
        # Valid files share few tables, so twice the size of the file is enough.
        super().__init__(2 * len(source.data))
        self._data, self._flat = source.data, source.elements
        # Most shapes and options are equal to others, and take much memory.
        self._equal: dict[Hashable, Any] = {}
        self._root = read_root(source.data)
        groups = self.read_tables(self._root["external_buffer_groups"])
        slices = self.read_tables(self._root["external_buffers"])
        self._stored = StoredBytes(source, self._root["buffers"], groups, slices)
        self._codes = [
            self._read_code(code) for code in self.read_tables(self._root["operator_codes"])
        ]

    @property
    def entry_points(self) -> dict[str, int]:
        """The index of the sub-graph of each signature; of equal keys the first one counts."""
        found: dict[str, int] = {}
        for table in self.read_tables(self._root["signature_defs"]):
            found.setdefault(self.read_text(table["signature_key"]), table["subgraph_index"])
        return found

    def read_whole_model(self) -> Model:
        return self._read_parts(range(len(self._root["subgraphs"])))

    def read_entry_point(self, key: str | None) -> Model:
        index = 0 if key is None else self.entry_points.get(key)
        if index is None or any(map(self._has_states, self.read_tables(self._root["subgraphs"]))):
            return self.read_whole_model()
        return self._read_parts([index])

    def _read_parts(self, indices: Iterable[int]) -> Model:
        """Return the model with some sub-graphs and those that they call; the others are empty."""
        tables = self.read_tables(self._root["subgraphs"])
        if not tables:
            fail_damaged("it has no subgraph")
        found: dict[int, Graph] = {}
        left = [*indices]
        for index in left:  # the loop appends to the list
            if index not in found:
                found[index] = self._read_graph(expect_item(tables, index, "a subgraph"))
                left += found[index].list_subgraph_indices(len(tables))
        graphs = tuple(found.get(i, NO_GRAPH) for i in range(len(tables)))
        signatures = self.read_tables(self._root["signature_defs"])
        unread = {*range(len(tables))} - found.keys()
        return Model(
            graphs,
            tuple(
                self._read_signature(signature, graphs)
                for signature in signatures
                if signature["subgraph_index"] not in unread
            ),
            dict(self._read_metadata(entry) for entry in self.read_tables(self._root["metadata"])),
            self.read_text(self._root["description"]),
            self._root["version"],
        )

    # Fields

    def _read_numbers(self, vector: Array) -> tuple[Any, ...]:
        self.use_budget(vector.nbytes)
        numbers = tuple(vector.tolist())
        return cast("tuple[Any, ...]", self._equal.setdefault((vector.dtype, numbers), numbers))

    def _copy_bytes(self, raw: memoryview) -> bytes:
        self.use_budget(len(raw))
        return bytes(raw)

    # Parts

    def _read_code(self, code: Table) -> tuple[str, bool, int]:
        number = max(code["deprecated_builtin_code"], code["builtin_code"])
        name = _CODES.get(number, f"operator code {number}")
        if name == "CUSTOM":
            return self.read_text(code["custom_code"]), True, code["version"]
        return name, False, code["version"]

    def _read_metadata(self, entry: Table) -> tuple[str, bytes]:
        return self.read_text(entry["name"]), self._copy_bytes(
            self._stored.read_buffer(entry["buffer"])
        )

    def _has_states(self, graph: Table) -> bool:
        tensors = self.read_tables(graph["tensors"])
        found = any(t["is_variable"] or _TYPES.get(t["type"]) == "RESOURCE" for t in tensors)
        release_memory(self._data)  # the tables of all sub-graphs take several MB
        return found

    def _read_graph(self, table: Table) -> Graph:
        inputs, outputs = self._read_numbers(table["inputs"]), self._read_numbers(table["outputs"])
        tables, ops = self.read_tables(table["tensors"]), self.read_tables(table["operators"])
        reads = [self._read_numbers(op["inputs"]) for op in ops]
        writes = [self._read_numbers(op["outputs"]) for op in ops]
        names = _make_unique([self.read_text(t["name"]) for t in tables], (*inputs, *outputs))
        results = {*inputs, *(i for indices in writes for i in indices)}
        # In files from before 2021 no tensor has the field has_rank.
        ranks = [t["has_rank"] for t in tables]
        ranks = ranks if any(ranks) else [True] * len(ranks)
        tensors = tuple(
            self._read_tensor(tables, i, name, computed=i in results, has_rank=ranks[i])
            for i, name in enumerate(names)
        )
        # An input may have elements in the file. LiteRT overwrites them.
        release_memory(self._data)  # pages with tables
        fed = {*inputs}
        tensors = tuple(replace(t, data=None) if i in fed else t for i, t in enumerate(tensors))
        graph = Graph(
            self.read_text(table["name"]),
            _pick_tensors(tensors, inputs, "an input of the graph"),
            _pick_tensors(tensors, outputs, "an output of the graph"),
            tuple(self._read_op(i, op, tensors, reads[i], writes[i]) for i, op in enumerate(ops)),
            tensors,
        )
        if wrong := explain_order(graph):
            fail_damaged(wrong)
        return graph

    def _read_op(
        self, index: int, table: Table, tensors: Sequence[Tensor], reads: Shape, writes: Shape
    ) -> Op:
        number = table["opcode_index"]
        code, custom, version = expect_item(self._codes, number, f"operator {index}'s code")
        place = f"a tensor of {code} (operator {index})"
        raw = self._read_custom_options(table)
        return Op(
            code,
            index,
            tuple(None if i == -1 else expect_item(tensors, i, place) for i in reads),
            _pick_tensors(tensors, writes, place),
            Options(flexbuffer.decode_map(raw)) if custom else self._read_options(code, table),
            custom,
            raw,
            _pick_tensors(tensors, self._read_numbers(table["intermediates"]), place),
            version,
        )

    def _read_options(self, code: str, table: Table) -> Options:
        """Return the options of an operator, all 0 if the file has no table of the operator's kind.

        The kernels get the same zeros: their parsers clear the struct, and do not apply the
        schema's defaults (ParseOpDataTfLite in flatbuffer_conversions.cc).
        """
        kind = _SHARED.get(code) or _NAMED.get(code.replace("_", ""))
        fields = table["builtin_options"] or table["builtin_options2"]
        if kind is None:
            return Options()
        if fields is not None and fields.kind == kind:
            return self._share_options(kind, {n: self._read_option(n, fields[n]) for n in fields})
        zeros = make_zero_fields(kind)
        unknown = {n: 0 for n in _WITH_UNKNOWN & zeros.keys() if isinstance(zeros[n], int)}
        options = {n: self._read_option(n, zero) for n, zero in zeros.items()} | unknown
        return self._share_options(kind, options)

    def _share_options(self, kind: str, options: Mapping[str, Any]) -> Options:
        """Return one object for all equal options without a map."""
        if any(isinstance(value, dict) for value in options.values()):
            return Options(options)
        return cast("Options", self._equal.setdefault((kind, *options.items()), Options(options)))

    def _read_option(self, name: str, value: Any) -> Any:  # noqa: ANN401 - fields have any type
        if name in _ENUMERATIONS and isinstance(value, int):
            # The kernels read an unknown activation function as NONE.
            other = "NONE" if name == "fused_activation_function" else str(value)
            return _NAMES[_ENUMERATIONS[name]].get(value, other)
        if name == "composite_attributes":
            return flexbuffer.decode_map(self._copy_bytes(memoryview(value)))
        if isinstance(value, np.ndarray):
            return self._read_numbers(value)
        # The kernels read strings of C, which end before the first zero byte.
        return self.read_text(value.partition(b"\0")[0]) if isinstance(value, bytes) else value

    def _read_custom_options(self, table: Table) -> bytes:
        if table["custom_options"].size:
            return self._copy_bytes(memoryview(table["custom_options"]))
        place = table["large_custom_options_offset"], table["large_custom_options_size"]
        return self._copy_bytes(self._stored.read_at(*place))

    def _read_tensor(
        self, tables: Sequence[Table], index: int, name: str, *, computed: bool, has_rank: bool
    ) -> Tensor:
        table = tables[index]
        shape, kind = self._read_numbers(table["shape"]), table["type"]
        if kind not in _TYPES:
            raise ModelFileError(f"the type of tensor {name} must be one of TFLite's, got {kind}")
        dtype = DType[_TYPES[kind]]
        wrong = min(shape, default=0) < 0 or len(shape) > MOST_AXES
        if wrong or buffers.count_bytes(shape, dtype) > _MOST_BYTES:
            raise ModelFileError(
                f"the shape of tensor {name} must have at most {MOST_AXES} axes, no negative size"
                f" and fewer than 2^62 bytes, got {list(shape)[:MOST_AXES]}"
            )
        sparsity = self._read_sparsity(table["sparsity"])
        try:
            data = self._read_elements(table, shape, dtype, sparse=sparsity is not None)
            if dtype is DType.BOOL and data is not None:
                buffers.warn_of_other_bytes(name, self._stored.read_tensor(table))
            if data is None and 0 in shape and not computed and dtype.numpy is not None:
                data = np.empty(shape, dtype.numpy)
            constant = data is not None
            scales = table["quantization"]
            quantization = self._read_quantization(scales, shape, dtype, tables, constant=constant)
        except buffers.ElementsError as error:
            fail_damaged(f"tensor {name}: {error}")
        return Tensor(
            name,
            shape,
            dtype,
            data,
            quantization,
            self._read_numbers(table["shape_signature"]),
            table["is_variable"],
            sparsity,
            has_rank=has_rank,
        )

    def _read_elements(
        self, table: Table, shape: Shape, dtype: DType, *, sparse: bool
    ) -> Array | None:
        key = (table["buffer"], table["external_buffer"], dtype)
        if key not in self._flat:
            raw = self._stored.read_tensor(table)
            if not len(raw) or dtype.is_handle:
                return None
            # A page of the file with a table, or with few elements, has weights around it.
            if len(raw) > _COPIED_BYTES:
                release_memory(self._data)
            else:
                raw = memoryview(bytes(raw))
            self._flat[key] = buffers.read_flat(raw, dtype)
        return self._flat[key] if sparse else buffers.shape_elements(self._flat[key], shape)

    def _read_sparsity(self, table: Table | None) -> Sparsity | None:
        if table is None:
            return None
        axes = tuple(
            SparseAxis(
                axis["dense_size"],
                _read_values(axis["array_segments"]),
                _read_values(axis["array_indices"]),
            )
            for axis in self.read_tables(table["dim_metadata"])
        )
        order, blocks = table["traversal_order"], table["block_map"]
        return Sparsity(self._read_numbers(order), self._read_numbers(blocks), axes)

    def _read_quantization(
        self,
        table: Table | None,
        shape: Shape,
        dtype: DType,
        tensors: Sequence[Table],
        *,
        constant: bool,
    ) -> Quantization | None:
        if table is None:
            return None
        details: Table | None = table["details"]
        if details is not None and details.kind == "MultiAxisQuantization":
            raise buffers.ElementsError(
                "its scales must be along one axis: no TFLite kernel supports several"
            )
        if details is not None and details.kind == "BlockwiseQuantization":
            return self._read_blockwise(details, shape, tensors)
        scale, axis = table["scale"], table["quantized_dimension"]
        if len(shape) == 1:
            axis = 0  # old converters copy the axis from the weights to the bias
        if not scale.size or (dtype in _ACCUMULATORS and not buffers.are_scales(scale)):
            return None
        zero = table["zero_point"] if table["zero_point"].size else np.asarray(np.int64(0))
        if zero.size not in (1, scale.size):
            raise buffers.ElementsError(
                f"it must have 1 or {scale.size} zero points, got {zero.size}"
            )
        if scale.size > 1 and not (0 <= axis < len(shape) and shape[axis] == scale.size):
            raise buffers.ElementsError(
                f"it must have a scale for each element of axis {axis} of {list(shape)},"
                f" got {scale.size}"
            )
        if dtype.is_integer:
            # Operators check infinite scales, and `flip_negative_scales` makes scales positive.
            known = scale if not constant else np.where(scale == np.inf, 0, abs(scale))
            buffers.check_stored_scales(known)
            if not buffers.fits_type(dtype, zero):
                raise buffers.ElementsError(f"its zero points must fit into {dtype.label}")
        return Quantization(
            scale,
            zero if zero.shape == scale.shape else np.broadcast_to(zero, scale.shape),
            axis if scale.size > 1 else 0,
        )

    def _read_blockwise(
        self, details: Table, shape: Shape, tensors: Sequence[Table]
    ) -> Quantization:
        """Return scales from a separate tensor, one for each block of the last axis."""
        size = details["block_size"]
        if size <= 0 or not shape or shape[-1] % size:
            raise buffers.ElementsError(
                f"the last size of {list(shape)} must be a multiple of the block size {size}"
            )
        blocks = (*shape[:-1], shape[-1] // size)
        scale = self._read_parameter(tensors, details["scales"], blocks)
        buffers.check_stored_scales(scale)
        index = details["zero_points"]
        zero = np.int64(0) if index == -1 else self._read_parameter(tensors, index, blocks)
        key = find_address(scale), blocks
        if key not in self._flat:
            self._flat[key] = buffers.widen_numbers(scale)
        return Quantization(
            self._flat[key],
            np.broadcast_to(np.asarray(zero, np.int64), blocks),
            len(shape) - 1,
            size,
            scale if scale.dtype == np.float16 else None,
        )

    def _read_parameter(self, tensors: Sequence[Table], index: int, shape: Shape) -> Array:
        table = expect_item(tensors, index, "a tensor of scales or zero points")
        dtype = DType[_TYPES.get(table["type"], "VARIANT")]
        data = self._read_elements(table, shape, dtype, sparse=False)
        if data is None or data.dtype.kind not in "fiu":
            raise buffers.ElementsError("its scales and zero points must be constant numbers")
        self.use_budget(data.nbytes)  # each tensor that shares these parameters gets a copy
        return data

    def _read_signature(self, table: Table, graphs: Sequence[Graph]) -> Signature:
        key, index = self.read_text(table["signature_key"]), table["subgraph_index"]
        tensors = expect_item(graphs, index, f"the subgraph of signature {key}").tensors

        def read_tensors_by_name(maps: Sequence[Table]) -> dict[str, Tensor]:
            place = f"a tensor of signature {key}"
            return {
                self.read_text(m["name"]): expect_item(tensors, m["tensor_index"], place)
                for m in maps
            }

        inputs, outputs = self.read_tables(table["inputs"]), self.read_tables(table["outputs"])
        return Signature(key, index, read_tensors_by_name(inputs), read_tensors_by_name(outputs))


def _pick_tensors(
    tensors: Sequence[Tensor], indices: Iterable[int], role: str
) -> tuple[Tensor, ...]:
    return tuple(expect_item(tensors, i, role) for i in indices if i != -1)


def _read_values(indices: Table | None) -> Array | None:
    """Return a vector of indices of a sparse tensor, of any integer type."""
    return None if indices is None else indices["values"]


def _make_unique(names: Sequence[str], first: Iterable[int]) -> list[str]:
    """Make names unique; on a conflict the names at the indices `first` are kept."""
    taken: set[str] = set()
    chosen_names: dict[int, str] = {}
    for i in dict.fromkeys((*(i for i in first if 0 <= i < len(names)), *range(len(names)))):
        base = f"{names[i] or 'tensor'}_{i}"
        candidates = chain((names[i] or base, base), (f"{base}_{n}" for n in count(1)))
        chosen_names[i] = next(name for name in candidates if name not in taken)
        taken.add(chosen_names[i])
    return [chosen_names[i] for i in range(len(names))]
