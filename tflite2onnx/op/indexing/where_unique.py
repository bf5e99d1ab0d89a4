"""WHERE, UNIQUE and SKIP_GRAM: operators with data-dependent output shapes."""

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from tflite2onnx.op.base import Builder, DataDependentSize, OperatorError, OutputShape, Value, View
from tflite2onnx.op.traits import AnySizes, Foldable, Movement
from tflite2onnx.quantization.declarations import Integers
from tflite2onnx.tensor import Array, DType

_SPACES = " \t\n\v\f\r"
_MOST = 1 << 12  # the largest number of n-grams that begin at one word


class Where(AnySizes, Foldable):
    """WHERE: the indices of all elements that are not 0, one in each row, in row-major order."""

    codes = ("WHERE",)
    operands = "bool|float32|int8|uint8|int32|uint32|int64 [... n] -> int64"
    quantization = Integers(in_file_types=True)

    def infer_outputs(self) -> Sequence[OutputShape]:
        x = self.input(0)
        return [(DataDependentSize() if x.data is None else np.count_nonzero(x.data), x.rank)]

    def emit(self, g: Builder, y: View, x: View) -> Value:
        # The kernel compares stored integers with 0, and ignores the zero point.
        return g.Transpose(g.NonZero(g.recast(x, x.dtype, DType.BOOL)), perm=[1, 0])

    def evaluate(self, *inputs: Array) -> Sequence[Array] | None:
        return [np.argwhere(inputs[0]).astype(np.int64)]


class Unique(Movement):
    """UNIQUE: the different elements by first occurrence, and the index of each input element."""

    codes = ("UNIQUE",)
    operands = "T:float32|int8|uint8|int16|int32|int64 [n] -> T, index"

    def infer_outputs(self) -> Sequence[OutputShape]:
        return [(DataDependentSize(),), self.input(0).shape]

    def emit(self, g: Builder, ys: tuple[View, View], x: View) -> tuple[Value, Value]:
        dtype = g.compute_type("Unique", x.dtype)
        values, _, indices = g.node_outputs("Unique", 3, g.recast(x, x.dtype, dtype), sorted=0)
        return g.recast(values, dtype, x.dtype), g.recast(indices, DType.INT64, ys[1].dtype)


class SkipGram(AnySizes):
    """All n-grams of a sentence's words, with up to `max_skip_size` words left out between two.

    The kernel loses the first word after a single leading white space; this operator does not.
    """

    codes = ("SKIP_GRAM",)
    operands = "string -> string"

    @cached_property
    def _grams(self) -> list[tuple[int, ...]]:
        """The n-grams that begin at a word, as distances from it, in the kernel's sequence."""
        o = self.options
        size, reach = int(o.ngram_size), max(int(o.max_skip_size), -1) + 1
        if size < 1 or reach > _MOST or max(reach, 1) ** (size - 1) > _MOST or size > _MOST:
            raise OperatorError(
                f"ngram_size must be positive, and the number of n-grams that begin at one word at "
                f"most {_MOST}, got ngram_size {size} and max_skip_size {reach - 1}"
            )

        def extend_gram(gram: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
            if len(gram) < size:
                for step in range(1, reach + 1):
                    yield from extend_gram((*gram, gram[-1] + step))
            if o.include_all_ngrams or len(gram) == size:
                yield gram

        return list(extend_gram((0,)))

    def infer_outputs(self) -> Sequence[OutputShape]:
        return [(DataDependentSize(),)]

    def check(self) -> None:
        x, _ = self.input(0), self._grams  # the property raises OperatorError
        if not x.elements:
            raise OperatorError(f"{x.name} must have at least one element, got none")

    def emit(self, g: Builder, y: View, x: View) -> Value:
        words = self._split_words(g, x)
        count, size = g.Shape(words), int(self.options.ngram_size)
        first = g.Range(0, g.reshape(count, []), 1)
        # An n-gram exists if the text has its last word.
        reach = np.array([gram[-1] for gram in self._grams], np.int64)
        exists = g.Less(g.Add(g.Unsqueeze(first, [1]), reach), count)
        exists = g.And(exists, g.GreaterOrEqual(count, [size]))
        begin, number = (g.Gather(g.NonZero(exists), row) for row in (0, 1))
        grams = g.Gather(words, begin)
        for place in range(1, size):
            has = np.array([len(gram) > place for gram in self._grams])
            steps = np.array([(*gram, *size * (0,))[place] for gram in self._grams], np.int64)
            word = g.Gather(words, g.Add(begin, g.Gather(steps, number)))
            suffix = g.StringConcat(g.text(" "), word)
            if not has.all():
                suffix = g.Where(g.Gather(has, number), suffix, g.text(""))
            grams = g.StringConcat(grams, suffix)
        return grams

    def _split_words(self, g: Builder, x: View) -> Value:
        """Return the words of the first string, which white space separates."""
        words = g.Gather(g.reshape(x, ["strings"]), [0])
        for space in _SPACES:
            parts, _ = g.node_outputs("StringSplit", 2, words, delimiter=space)
            words = g.reshape(parts, ["words"])
        is_empty = g.add_with_casts("Equal", DType.STRING, words, g.text(""))
        return g.Compress(words, g.Not(is_empty))
