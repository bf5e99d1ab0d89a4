"""A model under construction, and random elements of all types for its inputs."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.support import Build
from tests.support.facts import carrier

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support import Tensor
    from tests.support.tensor import TensorFields

Array = np.ndarray[Any, Any]
Range = tuple[float, float]

# LiteRT's interpreter has no inputs and outputs of these types: CAST converts them.
_BY_CAST = frozenset({"bfloat16", "int2", "int4", "uint4"})
_WORDS = np.array(["a", "b", "", "abc", "ä"], object)
_FLOATS = (0.0, -0.0, 0.5, -0.5, 1.5, -1.5, 2.5, 1.0, -1.0, 6.0, -6.0, 3.0, -3.0, 1e-6, -1e-6, 40.0)
_NOT_FINITE = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -2.5, 7.0)
_SMALL = {"int2": (-2, 1), "int4": (-8, 7), "uint4": (0, 15)}
# Scales relative to those for 8 bits: smaller for 16 bits, larger for 4 and 2 bits.
_STEPS = {"int16": 1 / 256, "int4": 16.0, "uint4": 16.0, "int2": 64.0}
_ZEROS = {"int8": (-30, 30), "uint8": (98, 158)}
QUANTIZED = {f"quantized {dtype}": dtype for dtype in ("int8", "uint8", "int16", "int4")}


class Bench(Build):
    """A model of one operator with random inputs; the name of the case is the seed.

    `kind` is the element type of the case, or a quantized type such as "quantized int8". `values`
    is the kind of elements of the inputs: "random", "edges" (zeros, ties, extremes) or "not
    finite". `arrays` are the elements of the inputs, `operands` the elements of inputs and
    constants in order of creation, `given` the outputs. By default each run rotates the elements
    of an input; `over` maps the number of an input to its elements in each run instead.
    """

    def __init__(self, name: str, kind: str, values: str = "random") -> None:
        super().__init__()
        self.kind = kind
        self.values = values
        self.generator = np.random.default_rng(zlib.crc32(name.encode()))
        self.arrays: list[Array] = []
        self.operands: list[Array] = []
        self.given: list[Tensor] = []
        self.over: dict[int, Sequence[Array]] = {}

    def type(self, kind: str | None = None, step: float = 1.0) -> TensorFields:
        """Return the type of a new tensor; a quantized type has a new random scale.

        The scale is around 0.05 for 8 bits, multiplied by `step`.
        """
        kind = self.kind if kind is None else kind
        if kind not in QUANTIZED:
            return {"dtype": kind}
        dtype = QUANTIZED[kind]
        scale = self.generator.uniform(0.03, 0.08) * step * _STEPS.get(dtype, 1.0)
        low, high = _ZEROS.get(dtype, (0, 0))
        zero_point = int(self.generator.integers(low, high, endpoint=True))
        return {"dtype": dtype, "scale": scale, "zero_point": zero_point}

    def add_input(
        self,
        shape: Sequence[int],
        fields: TensorFields | str | None = None,
        within: Range | Array | None = None,
    ) -> Tensor:
        """Return an input of a type (by default that of the case), with elements within a range.

        `within` may also be an array of all elements.
        """
        fields = self._fields(fields)
        dtype = str(fields["dtype"])
        array = self.draw(shape, dtype, within)
        self.operands.append(array)
        if dtype == "string" and not shape:  # LiteRT alters scalar string inputs
            self.arrays.append(array.reshape(1))
            return self.op("RESHAPE", [self.input([1], **fields)], [shape], new_shape=[])[0]
        if dtype not in _BY_CAST:
            self.arrays.append(array)
            return self.input(shape, **fields)
        self.arrays.append(array.astype(np.float32))
        return self.op("CAST", [self.input(shape)], [self.tensor(shape, **fields)])[0]

    def add_constant(
        self,
        shape: Sequence[int],
        fields: TensorFields | str | None = None,
        within: Range | Array | None = None,
    ) -> Tensor:
        """Return a constant, with the parameters of `add_input`."""
        fields = self._fields(fields)
        array = self.draw(shape, str(fields["dtype"]), within)
        self.operands.append(array)
        return self.constant(array, **fields)

    def output_tensor(
        self, shape: Sequence[int], fields: TensorFields | str | None = None
    ) -> Tensor:
        """Return a tensor for an output of an operator, with a new scale."""
        return self.tensor(shape, **self._fields(fields))

    def add_outputs(self, *tensors: Tensor) -> None:
        """Make tensors the next outputs."""
        self.given += tensors
        for tensor in tensors:
            by_cast = tensor.dtype in _BY_CAST
            self.output(
                self.op("CAST", [tensor], [tensor.shape], dtype="float32")[0] if by_cast else tensor
            )

    def draw(self, shape: Sequence[int], dtype: str, within: Range | Array | None = None) -> Array:
        """Return elements of a type: random within a range, or the given array."""
        kind = carrier(dtype)
        if isinstance(within, np.ndarray):
            return within.astype(kind).reshape(shape)
        if dtype == "string":
            return np.asarray(self.generator.choice(_WORDS, tuple(shape)), object)
        if dtype == "bool":
            return self.generator.integers(0, 1, shape, bool, endpoint=True)
        if kind.kind in "iu":
            return self._integers(shape, dtype, within)
        if kind.kind == "c":
            parts = [self._floats(shape, within) for _ in range(2)]
            return np.asarray(parts[0] + 1j * parts[1]).astype(kind)
        return self._floats(shape, within).astype(kind)

    def _fields(self, fields: TensorFields | str | None) -> TensorFields:
        return self.type(fields) if fields is None or isinstance(fields, str) else fields

    def _integers(self, shape: Sequence[int], dtype: str, within: Range | None) -> Array:
        kind = carrier(dtype)
        limits = _SMALL.get(dtype) or (np.iinfo(kind).min, np.iinfo(kind).max)
        narrow = limits[1] < 1 << 16 or self.values == "edges"
        usual = limits if narrow else (max(limits[0], -100), 100)
        low, high = (int(n) for n in within or usual)
        low, high = max(low, limits[0]), min(high, limits[1])
        array = self.generator.integers(low, high, shape, kind, endpoint=True)
        if self.values != "edges":
            return array
        edges = [n for n in (low, high, low + 1, high - 1, 0, 1, -1, 2) if low <= n <= high]
        chosen = self.generator.choice(np.array(edges, kind), tuple(shape))
        return np.asarray(np.where(self.generator.random(shape) < 0.6, chosen, array))

    def _floats(self, shape: Sequence[int], within: Range | None) -> Array:
        low, high = within or (-8.0, 8.0)
        array = self.generator.uniform(low, high, shape)
        if self.values == "random":
            return array
        usual = np.clip(_FLOATS, low, high) if within else np.array(_FLOATS)
        edges = np.array(_NOT_FINITE) if self.values == "not finite" else usual
        chosen = self.generator.choice(edges, tuple(shape))
        return np.asarray(np.where(self.generator.random(shape) < 0.6, chosen, array))
