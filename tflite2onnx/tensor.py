"""Tensors as the file describes them: shape, dtype, constant data, quantization.

All values are immutable. Constant data is a view on the memory-mapped file.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tflite2onnx.utils.mapped_files import digest_elements

Array = npt.NDArray[Any]
Shape = tuple[int, ...]
Sizes = tuple[int | str, ...]  # a shape that has names in place of dynamic sizes
_NO_VALUES = np.empty(0, np.float32)
_NO_SYMBOLS: Mapping[int, str] = {}  # one object for all tensors, which saves memory
_LONGEST_NAME = 40  # the largest number of characters of the name of an axis
MOST_AXES = 32  # the limit of numpy before version 2; the kernels support fewer


class DType(enum.Enum):
    """TFLite's element types: the numpy type that holds one element, and its bits in the file.

    A type without a numpy type (strings, resources) has no fixed size. numpy holds the bits of
    float types that it lacks. `is_float` is for the real floating-point types, `is_integer` for
    integers of every width, `is_handle` for variables, tables and lists, which have no ONNX type.
    """

    FLOAT32 = ("float32", np.float32, 32)
    FLOAT16 = ("float16", np.float16, 16)
    FLOAT64 = ("float64", np.float64, 64)
    BFLOAT16 = ("bfloat16", np.uint16, 16)
    FLOAT8_E4M3FN = ("float8_e4m3fn", np.uint8, 8)
    FLOAT8_E5M2 = ("float8_e5m2", np.uint8, 8)
    COMPLEX64 = ("complex64", np.complex64, 64)
    COMPLEX128 = ("complex128", np.complex128, 128)
    BOOL = ("bool", np.bool_, 8)
    INT2 = ("int2", np.int8, 2)
    INT4 = ("int4", np.int8, 4)
    INT8 = ("int8", np.int8, 8)
    INT16 = ("int16", np.int16, 16)
    INT32 = ("int32", np.int32, 32)
    INT64 = ("int64", np.int64, 64)
    UINT4 = ("uint4", np.uint8, 4)
    UINT8 = ("uint8", np.uint8, 8)
    UINT16 = ("uint16", np.uint16, 16)
    UINT32 = ("uint32", np.uint32, 32)
    UINT64 = ("uint64", np.uint64, 64)
    STRING = ("string", None, 0)
    RESOURCE = ("resource", None, 0)
    VARIANT = ("variant", None, 0)

    __hash__ = object.__hash__  # Enum's own hash is slow, and types are keys of many dictionaries

    def __init__(self, label: str, numpy: type[Any] | None, bits: int) -> None:
        self.label = label
        self.numpy = numpy
        self.bits = bits
        self.is_float = "float" in label
        self.is_integer = "int" in label
        self.is_handle = label in ("resource", "variant")


@dataclass(frozen=True, eq=False)
class Quantization:
    """Affine quantization: real = scale * (stored - zero_point).

    `scale` is float32 and `zero_point` int64, both of shape [1], or [n] along `axis` (a TFLite
    axis). With a `block_size` both have the shape of the tensor with the last size divided by the
    block size: each scale belongs to `block_size` elements along the last axis.
    """

    scale: Array
    zero_point: Array
    axis: int = 0
    block_size: int = 0
    half_scale: Array | None = None  # the scale in float16, if the file stores it in float16

    @property
    def per_axis(self) -> bool:
        """True if there is more than one scale."""
        return self.scale.size > 1

    def with_scale(self, scale: Array, zero_point: Array) -> Quantization:
        """Return the quantization with other scales and zero points."""
        return replace(self, scale=scale, zero_point=zero_point, half_scale=None)

    @cached_property
    def stored_scale(self) -> Array:
        """The scales, as float16 if they are scales of blocks that float16 represents."""
        if not self.block_size:
            return self.scale
        if self.half_scale is not None:
            return self.half_scale
        with np.errstate(over="ignore"):
            half = self.scale.astype(np.float16)
        return half if np.array_equal(half, self.scale) else self.scale

    @cached_property
    def key(self) -> Hashable:
        """The scales and zero points as a short key of dictionaries."""
        zeros = self.zero_point if any(self.zero_point.strides) else self.zero_point.flat[:1]
        return digest_elements(self.stored_scale), digest_elements(zeros)

    def same_as(self, other: Quantization | None) -> bool:
        """Return whether both quantizations map stored integers to the same real numbers."""
        return (
            other is not None
            and (self.axis == other.axis or not self.per_axis)
            and self.block_size == other.block_size
            and np.array_equal(self.scale, other.scale)
            and np.array_equal(self.zero_point, other.zero_point)
        )


class SparseAxis(NamedTuple):
    """One level of a sparse tensor's storage: dense with a size, or segments and indices (CSR)."""

    size: int
    segments: Array | None = None
    indices: Array | None = None


class Sparsity(NamedTuple):
    """The storage format of a sparse constant (TACO); see `reader.sparsity`."""

    traversal_order: Shape
    block_map: Shape
    axes: tuple[SparseAxis, ...]


@dataclass(frozen=True, eq=False)
class Assembly:
    """How a constant consists of copies of a smaller constant; an ONNX model makes it at load.

    Each copy of `source` has its own padding with `fill`, before and after each axis. The copies
    follow each other along the first axis. Then the axes are permuted, and the shape is changed.
    """

    source: Array
    pads: tuple[tuple[tuple[int, int], ...], ...]
    permutation: Shape
    shape: Shape
    fill: int = 0

    @cached_property
    def elements(self) -> Array:
        """The elements of the constant."""
        size = self.source.shape
        copies = []
        for pads in self.pads:  # a loop: np.pad takes several times as long
            shape = [n + sum(pad) for n, pad in zip(size, pads, strict=True)]
            copy = np.full(shape, self.fill, self.source.dtype)
            copy[tuple(slice(pad[0], pad[0] + n) for n, pad in zip(size, pads, strict=True))] = (
                self.source
            )
            copies.append(copy)
        return np.concatenate(copies).transpose(self.permutation).reshape(self.shape)

    @property
    def appends_zeros(self) -> bool:
        """Whether the constant is one copy with zeros after its elements along each axis."""
        pads_after = not any(before for pads in self.pads for before, _ in pads)
        return pads_after and len(self.pads) == 1 and self.fill == 0 and self.keeps_axes

    @property
    def keeps_axes(self) -> bool:
        """Whether the constant has the axes of the copies, which are joined along axis 0."""
        is_plain = self.permutation == tuple(range(len(self.permutation)))
        return is_plain and self.shape[1:] == tuple(
            size + sum(pad)
            for size, pad in zip(self.source.shape[1:], self.pads[0][1:], strict=True)
        )


@dataclass(frozen=True, eq=False, slots=True)
class Tensor:
    """A tensor of one subgraph; compared by identity.

    `data` has the elements of a constant in the shape of the tensor; the elements of a sparse
    constant are flat. Strings are `bytes` in an array of objects. The numpy type may be narrower
    than `dtype`: float16 weights that operators read as float32 stay float16 in the ONNX file.

    `shape` and `shape_signature` are the declared shapes; the signature is -1 for each dynamic axis
    (`dynamic_axes`). Files omit the signature, or leave it stale, for tensors that are not inputs.
    If not `has_rank`, the file does not know the number of axes, and declares no axes; LiteRT
    treats an input of unknown rank as a scalar. `symbols` is the result of the analysis: the names
    of the dynamic sizes of the ONNX model by axis; equal names are equal sizes. A size without a
    name is fixed. `assembly` says how `data` consists of copies, None if it does not.
    """

    name: str
    shape: Shape
    dtype: DType
    data: Array | None = None
    quantization: Quantization | None = None
    shape_signature: Shape = ()
    is_variable: bool = False
    sparsity: Sparsity | None = None
    symbols: Mapping[int, str] = field(default_factory=lambda: _NO_SYMBOLS)
    has_rank: bool = True
    assembly: Assembly | None = None

    @property
    def is_unranked(self) -> bool:
        """Whether the number of axes is neither declared nor inferred."""
        return not self.has_rank and not self.shape

    @property
    def dynamic_axes(self) -> frozenset[int]:
        """The axes whose size the file does not fix; none if its signature has another rank."""
        if len(self.shape_signature) != self.rank:
            return frozenset()
        return frozenset(i for i, size in enumerate(self.shape_signature) if size == -1)

    @property
    def has_data(self) -> bool:
        """Whether the tensor is a constant whose elements are stored."""
        return self.data is not None

    @property
    def per_axis(self) -> bool:
        """Whether the tensor has more than one scale."""
        return self.quantization is not None and self.quantization.per_axis

    @property
    def is_symmetric(self) -> bool:
        """Whether the tensor has scales, and all zero points are 0."""
        return self.quantization is not None and not self.quantization.zero_point.any()

    @property
    def is_constant(self) -> bool:
        """Whether the elements are known: the tensor is constant, or is empty."""
        return self.has_data or (0 in self.shape and not self.dynamic_axes)

    @property
    def values(self) -> Array:
        """The elements of a constant; no elements if they are computed."""
        return _NO_VALUES if self.data is None else self.data

    @property
    def sizes(self) -> Sizes:
        """The shape with the names of dynamic sizes."""
        if not self.symbols:
            return self.shape
        return tuple(map(self.symbols.get, range(self.rank), self.shape))

    @property
    def layout_shape(self) -> Shape:
        """The shape with dynamic sizes of at least 2: the position of a dynamic axis matters."""
        if not self.symbols:
            return self.shape
        return tuple(
            max(size, 2) if axis in self.symbols else size for axis, size in enumerate(self.shape)
        )

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes that one move of the tensor writes (sub-byte types are moved as bytes)."""
        return self.elements * max(self.dtype.bits // 8, 1)

    def reshape_constant(self, shape: Shape) -> Tensor:
        """Return the constant with the same elements in a shape of the same number of elements."""
        data = None if self.data is None else self.data.reshape(shape)
        return replace(self, shape=shape, data=data, shape_signature=(), symbols={})


def name_axis(tensor: Tensor, axis: int | str) -> str:
    """Return the name of an axis, of at most 40 characters.

    A longer name keeps its start, and ends with a digest of the whole name, which makes it unique.
    """
    name = f"{tensor.name}_{axis}"
    if len(name) <= _LONGEST_NAME:
        return name
    from hashlib import sha256  # noqa: PLC0415 - slow to import, and few names are long

    end = f"~{sha256(tensor.name.encode()).hexdigest()[:8]}_{axis}"
    return name[: _LONGEST_NAME - len(end)] + end
