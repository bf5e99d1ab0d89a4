"""SentencePiece models as tokenizers of Hugging Face, which onnxruntime-genai reads.

A model is a message ModelProto (sentencepiece_model.proto of google/sentencepiece): pieces of text
with scores, and settings. A tokenizer of Hugging Face spells the settings out as steps.
"""

import base64
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tflite2onnx.reader.containers.protobuf import decode_message

SPACE = "\N{LOWER ONE EIGHTH BLOCK}"  # stands for a space in pieces
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED = 1, 2, 3, 4  # SentencePiece.Type
_UNIGRAM, _BPE = 1, 2  # TrainerSpec.ModelType
_LONGEST = 1 << 10  # Characters of a piece; SentencePiece makes pieces of 16 at most by default.


class Piece(NamedTuple):
    """A token: its text, its score, and its type."""

    text: str
    score: float
    kind: int

    @property
    def content(self) -> str:
        """The text that tokenizers of Hugging Face find; some pieces are found before others.

        They are found before spaces are replaced.
        """
        return self.text.replace(SPACE, " ") if self.kind == _USER_DEFINED else self.text


class TextSpec(NamedTuple):
    """How a model prepares text and finds pieces: fields of NormalizerSpec and TrainerSpec.

    The values are SentencePiece's defaults.
    """

    precompiled_charsmap: bytes = b""
    add_dummy_prefix: int = 1
    remove_extra_whitespaces: int = 1
    model_type: int = _UNIGRAM
    treat_whitespace_as_suffix: int = 0
    byte_fallback: int = 0
    unk_id: int = 0


def convert_sentencepiece(data: bytes) -> tuple[dict[str, Any], str]:
    """Return a SentencePiece model as the content of tokenizer.json.

    The second result says what onnxruntime-genai does in another way than SentencePiece, "" for
    nothing.

    Raises:
        ValueError: the bytes are no SentencePiece model, or one that cannot be converted.
    """
    model = decode_message(data, "ModelProto")
    given = {**model.get("trainer_spec", {}), **model.get("normalizer_spec", {})}
    settings = TextSpec(**{name: given[name] for name in TextSpec._fields if name in given})
    pieces = [
        Piece(each.get("piece", ""), each.get("score", 0.0), each.get("type", _NORMAL))
        for each in model.get("pieces", ())
    ]
    _check_model(pieces, settings)
    tokens = [
        {
            "id": number,
            "content": piece.content,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": piece.kind != _USER_DEFINED,
        }
        for number, piece in enumerate(pieces)
        if piece.kind in (_UNKNOWN, _CONTROL, _USER_DEFINED)
    ]
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": tokens,
        "normalizer": {"type": "Sequence", "normalizers": list(_list_normalizers(settings))},
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": list(_list_decoders(settings))},
        "model": _describe_model(pieces, settings),
    }
    return tokenizer, _find_difference(pieces, settings)


def _find_difference(pieces: Sequence[Piece], settings: TextSpec) -> str:
    """Return what onnxruntime-genai 0.18 does in another way than SentencePiece, "" for nothing.

    The sources are bpe_kernels.cc and ugm_kernels.hpp of onnxruntime-extensions.
    """
    if settings.model_type == _UNIGRAM:
        if not (settings.add_dummy_prefix and settings.remove_extra_whitespaces):
            return "removes repeated spaces and adds a space in front of the text"
        return "has no tokens for bytes" if settings.byte_fallback else ""
    if settings.precompiled_charsmap or settings.remove_extra_whitespaces:
        return "does not normalize the text"
    if not settings.byte_fallback:
        return "has no token for characters without a piece"
    splits = settings.add_dummy_prefix and any(piece.kind == _USER_DEFINED for piece in pieces)
    return "adds a space after each special token" if splits else ""


def _check_model(pieces: Sequence[Piece], settings: TextSpec) -> None:
    """Raise ValueError for a model that cannot be converted."""
    if settings.model_type not in (_UNIGRAM, _BPE):
        raise ValueError(f"its type must be 1 (UNIGRAM) or 2 (BPE), got {settings.model_type}")
    if settings.treat_whitespace_as_suffix:
        raise ValueError("spaces must be before the words of its pieces, got spaces after words")
    if not 0 <= settings.unk_id < len(pieces):
        raise ValueError(
            f"the unknown piece must be below {len(pieces):,}, the number of pieces, got"
            f" {settings.unk_id:,}"
        )
    if not all(math.isfinite(piece.score) for piece in pieces):
        raise ValueError("the scores of its pieces must be numbers, got inf or nan")
    longest = max(len(piece.text) for piece in pieces)
    if longest > _LONGEST:
        raise ValueError(f"a piece must have at most {_LONGEST:,} characters, got {longest:,}")


def _list_normalizers(settings: TextSpec) -> Iterator[Mapping[str, Any]]:
    """Yield the steps that prepare the text between special tokens."""
    if settings.precompiled_charsmap:
        table = base64.b64encode(settings.precompiled_charsmap).decode()
        yield {"type": "Precompiled", "precompiled_charsmap": table}
    if settings.remove_extra_whitespaces:
        yield {"type": "Strip", "strip_left": True, "strip_right": True}
        yield {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
    if settings.add_dummy_prefix:
        # Metaspace as a pre-tokenizer adds no space in front of a text that begins with a space.
        yield {"type": "Prepend", "prepend": SPACE}
    yield {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}


def _list_decoders(settings: TextSpec) -> Iterator[Mapping[str, Any]]:
    """Yield the steps that make a text of pieces."""
    yield {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}
    yield {"type": "ByteFallback"}
    yield {"type": "Fuse"}
    if settings.add_dummy_prefix:
        yield {"type": "Strip", "content": " ", "start": 1, "stop": 0}


def _describe_model(pieces: Sequence[Piece], settings: TextSpec) -> dict[str, Any]:
    """Return the pieces, and how they are found in a text."""
    fallback = bool(settings.byte_fallback)
    if settings.model_type == _UNIGRAM:
        vocabulary = [[piece.content, piece.score] for piece in pieces]
        unknown = settings.unk_id
        return {
            "type": "Unigram", "unk_id": unknown, "vocab": vocabulary, "byte_fallback": fallback,
        }  # fmt: skip
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": pieces[settings.unk_id].text,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": True,
        "byte_fallback": fallback,
        "vocab": {piece.content: number for number, piece in enumerate(pieces)},
        "merges": _list_merges(pieces),
    }


def _list_merges(pieces: Sequence[Piece]) -> list[tuple[str, str]]:
    """Return the pairs of pieces that SentencePiece joins, in the order in which it joins them.

    SentencePiece joins two neighbours if a normal piece has the text of both; pieces of a higher
    score are joined first.
    """
    numbers = {p.text: i for i, p in enumerate(pieces) if p.kind != _USER_DEFINED}
    merges = []
    for text, score, kind in pieces:
        for i in range(1, len(text) if kind == _NORMAL else 0):
            left, right = numbers.get(text[:i]), numbers.get(text[i:])
            if left is not None and right is not None:
                merges.append((-score, left, right))
    return [(pieces[left].text, pieces[right].text) for _, left, right in sorted(merges)]
