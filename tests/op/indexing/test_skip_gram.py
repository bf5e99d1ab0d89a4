"""SKIP_GRAM: n-grams of words."""

from __future__ import annotations

import numpy as np
import pytest

from tests.op.ports import check_outputs
from tests.support import Build
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

SENTENCES = [
    "The quick brown fox jumps over the lazy dog!",
    "a b c d",
    "one\ttwo\n three\r\nfour \v five\fsix  ",
    "  two in front",
    "\u00fcber \u4f60\u597d \u4e16\u754c",
]

# n, and the number of words that may be skipped; all sentences are long enough.
SIZES = [(1, 0), (2, 0), (2, 2), (3, 0), (3, 1)]


def grams(m: Build, *, size: int, skip: int, every: bool) -> None:
    x = m.input([1], dtype="string")
    (y,) = m.op(
        "SKIP_GRAM",
        [x],
        [m.tensor([None], dtype="string")],
        ngram_size=size,
        max_skip_size=skip,
        include_all_ngrams=every,
    )
    m.output(y)


@pytest.mark.parametrize("sentence", SENTENCES)
@pytest.mark.parametrize("every", [False, True])
@pytest.mark.parametrize(("size", "skip"), [*SIZES, (4, 1)])
def test_skip_grams_of_sentences_equal_litert(
    sentence: str, size: int, skip: int, *, every: bool
) -> None:
    if size == 4 and len(sentence.split()) < 4:
        return
    m = Build()
    grams(m, size=size, skip=skip, every=every)
    check_outputs(m, inputs=[np.array([sentence], object)])


def test_too_few_words_give_no_skip_grams() -> None:
    """With fewer than n words there are no n-grams, also no shorter ones."""
    m = Build()
    x = m.input([2], dtype="string")
    (y,) = m.op(
        "SKIP_GRAM", [x], [m.tensor([None], dtype="string")], ngram_size=3, include_all_ngrams=True
    )
    (size,) = m.op("SHAPE", [y], [[1]], dtype="int32", out_type="int32")
    check_outputs(m, size, inputs=[np.array(["two words", "and more of them"], object)])


def test_refuses_sizes_out_of_range() -> None:
    for size, skip in ((0, 1), (1 << 20, 0), (9, 5)):
        m = Build()
        grams(m, size=size, skip=skip, every=False)
        with pytest.raises(ConversionError, match="ngram_size must be positive"):
            convert(m.bytes())
