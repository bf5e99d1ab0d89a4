"""Tokenizers for onnxruntime-genai: SentencePiece models, and the metadata of `.task` files."""

from __future__ import annotations

import io
import json
import logging
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import sentencepiece
import tokenizers

from tests.support.decoder import TOKENIZER, build_decoder
from tests.support.litertlm import Part, compress, message, model_part, pack_litertlm, varint
from tests.support.project import ROOT
from tests.support.task import METADATA, pack_task
from tflite2onnx import convert_bundle
from tflite2onnx.cli import main
from tflite2onnx.errors import BundleError
from tflite2onnx.reader.containers.bundle import read_bundle
from tflite2onnx.targets.genai.sentencepiece import convert_sentencepiece

if TYPE_CHECKING:
    from collections.abc import Mapping

GEMMA = {
    "add_dummy_prefix": False, "remove_extra_whitespaces": False, "byte_fallback": True,
    "normalization_rule_name": "identity",
}  # fmt: skip
LLAMA = {**GEMMA, "add_dummy_prefix": True}
T5: dict[str, Any] = {}  # the default settings
TURNS = ["<turn>", "</turn>"]
# Gemma's tokenizer has pieces of spaces that are found before other pieces.
SPACES = {**GEMMA, "user_defined_symbols": [*TURNS, "▁▁", "▁▁▁", "\n\n"]}
# What the settings do that onnxruntime-genai does not.
DIFFERENCES = {
    ("bpe", "GEMMA"): "",
    ("bpe", "SPACES"): "",
    ("bpe", "LLAMA"): "adds a space after each special token",
    ("bpe", "T5"): "does not normalize the text",
    ("unigram", "GEMMA"): "removes repeated spaces and adds a space in front of the text",
    ("unigram", "LLAMA"): "removes repeated spaces and adds a space in front of the text",
    ("unigram", "T5"): "",
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change to an empty folder."""
    monkeypatch.chdir(tmp_path)


def list_lines() -> list[str]:
    """Return texts with words, numbers, repeated spaces and characters without a piece.

    The licence stays as it is. In another text two sequences of pieces may be equally likely, of
    which SentencePiece, which adds float32 numbers, takes another one.
    """
    lines = (ROOT / "LICENSE").read_text().splitlines()
    odd = ["", " ", "  two  spaces ", "\n\n", "a\tb", "日本 ü ▁", "zqxj"]
    return [*filter(str.strip, lines), *odd]


@cache
def train(kind: str, settings: str) -> bytes:
    """Return a SentencePiece model of the words of the licence."""
    made = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(list_lines()),
        model_writer=made,
        model_type=kind,
        vocab_size=600,
        hard_vocab_limit=False,
        pad_id=0,
        eos_id=1,
        bos_id=2,
        unk_id=3,
        minloglevel=2,
        **{"user_defined_symbols": TURNS, **globals()[settings]},
    )
    return made.getvalue()


def build_task(metadata: bytes = METADATA, tokenizer: bytes | None = None) -> bytes:
    """Return a `.task` file of a decoder, a tokenizer and metadata."""
    pieces = train("bpe", "GEMMA") if tokenizer is None else tokenizer
    return pack_task(build_decoder(), pieces, metadata)


def read_json(name: str) -> Any:
    """Return the content of a file that was written."""
    return json.loads(Path("out", name).read_text())


@pytest.mark.parametrize(("kind", "settings"), DIFFERENCES, ids=str)
def test_converted_tokenizers_find_the_tokens_of_sentencepiece(kind: str, settings: str) -> None:
    data = train(kind, settings)
    content, difference = convert_sentencepiece(data)
    ours = tokenizers.Tokenizer.from_str(json.dumps(content))
    theirs = sentencepiece.SentencePieceProcessor(model_proto=data)
    # A space in front of the text is added after each special token, too.
    special = [] if theirs.encode("<turn>")[1:] else ["<turn>user\nHi  you</turn>"]
    # A piece of spaces is not found if the text has the character that stands for a space.
    lines = [line for line in list_lines() if settings != "SPACES" or "▁" not in line]
    for line in [*lines, *special]:
        tokens = theirs.encode(line)
        assert ours.encode(line, add_special_tokens=False).ids == tokens, line
        if theirs.unk_id() not in tokens:
            assert ours.decode(tokens) == theirs.decode(tokens)
    assert difference == DIFFERENCES[kind, settings]


def test_metadata_of_mediapipe_become_configurations() -> None:
    """The start and stop tokens are found in the SentencePiece model."""
    convert_bundle(build_task(), "out", target="genai")
    model = read_json("genai_config.json")["model"]
    assert model["bos_token_id"] == 2
    assert model["eos_token_id"] == [1, read_json("tokenizer.json")["model"]["vocab"]["</turn>"]]
    config = read_json("tokenizer_config.json")
    assert (config["tokenizer_class"], config["add_bos_token"]) == ("GemmaTokenizer", True)
    assert config["chat_template"] == (
        '{{ "<s>Be kind.\\n" }}{% for message in messages %}'
        "{% if message['role'] == 'system' %}{{ message['content'] }}"
        "{% elif message['role'] == 'user' %}"
        '{{ "<turn>user\\n" }}{{ message[\'content\'] }}{{ "</turn>\\n<turn>model\\n" }}'
        "{% elif message['role'] == 'assistant' %}{{ message['content'] }}"
        "{% endif %}{% endfor %}{% if add_generation_prompt %}{% endif %}"
    )
    assert {"METADATA", "TOKENIZER_MODEL"} <= {path.name for path in Path("out").iterdir()}


@pytest.mark.parametrize(
    ("data", "start"),
    [
        (message((1, message((2, "<s>"))), (2, message((2, "</s>")))), {"token_str": "<s>"}),
        (message((4, 7)), {"token_ids": {"ids": [7]}}),
        (message((1, message((1, 1))), (6, "<s>")), {"token_str": "<s>"}),
    ],
    ids=["LlmMetadata", "a number", "other fields"],
)
def test_start_token_is_read_from_both_kinds_of_metadata(
    data: bytes, start: Mapping[str, Any]
) -> None:
    assert read_bundle(build_task(data)).description["metadata"]["start_token"] == start


@pytest.mark.parametrize("data", [b"\x08\x01", b"\xff", b""])
def test_other_files_of_the_name_are_no_metadata(data: bytes) -> None:
    assert read_bundle(build_task(data)).description == {}


def test_metadata_of_an_archive_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    Path("model.task").write_bytes(build_task())
    assert main(["inspect", "model.task"]) == 0
    assert 'start_token       {"token_str": "<s>"}' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("template", "written"),
    [
        ("{{ messages }}", '{{ "<s>" }}{{ messages }}'),
        ("{{ bos_token }}{{ messages }}", "{{ bos_token }}{{ messages }}"),
        ("<s>{{ messages }}", "<s>{{ messages }}"),
    ],
)
def test_chats_begin_with_the_start_token(template: str, written: str) -> None:
    """LiteRT-LM puts the start token before a chat, whose template may have it already."""
    metadata = message((1, message((2, "<s>"))), (7, template))
    parts = [
        Part("LlmMetadataProto", metadata),
        Part("SP_Tokenizer", train("bpe", "LLAMA")),
        model_part(build_decoder()),
    ]
    convert_bundle(pack_litertlm(parts), "out", target="genai")
    assert read_json("tokenizer_config.json")["chat_template"] == written


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ({"model": {"type": "Unigram", "vocab": [["a", 0.0]]}}, "XLMRobertaTokenizer"),
        (
            {
                "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []},
                "decoder": {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            },
            "GemmaTokenizer",
        ),
        ({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}, "PreTrainedTokenizerFast"),
    ],
)
def test_class_follows_from_the_kind_of_tokenizer(content: Mapping[str, Any], kind: str) -> None:
    text = json.dumps(content).encode()
    parts = [Part("HF_Tokenizer_Zlib", compress(text)), model_part(build_decoder())]
    convert_bundle(pack_litertlm(parts), "out", target="genai")
    assert read_json("tokenizer_config.json")["tokenizer_class"] == kind


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_templates_that_must_be_given_are_named(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        convert_bundle(build_task(tokenizer=train(kind, "LLAMA")), "out", target="genai")
    assert ("as template_str" in caplog.text) == (kind == "unigram")


PIECE = message((1, message((1, "a"), (2, 0.5))))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x0a\x04test", "the type of a field must be 0, 1, 2 or 5, got 4"),
        (b"", "the unknown piece must be below 0, the number of pieces, got 0"),
        (PIECE + message((2, message((40, 7)))), "must be below 1, the number of pieces, got 7"),
        (PIECE + message((2, message((3, 3)))), "its type must be 1 (UNIGRAM) or 2 (BPE), got 3"),
        (PIECE + message((2, message((24, 1)))), "got spaces after words"),
        (PIECE + message((1, message((2, float("inf"))))), "must be numbers, got inf or nan"),
        (message((1, message((1, "a" * 2000)))), "at most 1,024 characters, got 2,000"),
    ],
)
def test_tokenizers_that_cannot_be_converted_are_named(
    data: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The decoder is written all the same: it may be run with tokens."""
    with caplog.at_level(logging.WARNING):
        convert_bundle(build_task(tokenizer=data), "out", target="genai")
    assert "TOKENIZER_MODEL is not converted because" in caplog.text
    assert reason in caplog.text
    assert Path("out/model.onnx").exists()
    assert not Path("out/tokenizer.json").exists()


@pytest.mark.parametrize(
    ("metadata", "tokenizer", "reason"),
    [
        (METADATA + message((7, 1)), train("bpe", "GEMMA"), "maps bytes to characters"),
        (METADATA, train("bpe", "T5"), "it does not normalize the text"),
        (
            METADATA,
            train("bpe", "GEMMA") + message((2, message((3, 2), (35, 0), (40, 3)))),
            "it has no token for characters without a piece",
        ),
    ],
)
def test_differences_of_onnxruntime_genai_are_named(
    metadata: bytes, tokenizer: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        convert_bundle(build_task(metadata, tokenizer), "out", target="genai")
    assert reason in caplog.text


def test_words_without_parts_are_not_read(caplog: pytest.LogCaptureFixture) -> None:
    text = b'{"model": {"type": "WordLevel", "vocab": {"a": 0, "b": [], "c": null}}}'
    parts = [Part("HF_Tokenizer_Zlib", compress(text)), model_part(build_decoder())]
    with caplog.at_level(logging.WARNING):
        convert_bundle(pack_litertlm(parts), "out", target="genai")
    assert "the type of the tokenizer must be BPE or Unigram, got WordLevel" in caplog.text
    assert read_json("genai_config.json")["model"]["eos_token_id"] == []


def test_stop_tokens_are_single_tokens_of_the_vocabulary(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Stop tokens are listed once; others than single tokens of the model are in a warning."""
    numbers = (message((1, message((1, varint(n))))) for n in (2, 16))
    several = message((1, message((1, varint(3) + varint(4)))))
    texts = (message((2, text)) for text in ("</s>", "no token"))
    metadata = message(*((2, token) for token in (*numbers, several, *texts)))
    parts = [Part("LlmMetadataProto", metadata), Part("HF_Tokenizer_Zlib", compress(TOKENIZER))]
    with caplog.at_level(logging.WARNING):
        convert_bundle(pack_litertlm([*parts, model_part(build_decoder())]), "out", target="genai")
    assert read_json("genai_config.json")["model"]["eos_token_id"] == [2]
    assert 'not at {"ids": [16]}, {"ids": [3, 4]}, "no token"' in caplog.text


def test_damaged_tokenizer_of_hugging_face_is_refused() -> None:
    parts = [Part("HF_Tokenizer_Zlib", compress(b"[1]")), model_part(build_decoder())]
    with pytest.raises(BundleError, match=r"tokenizer\.json is damaged"):
        convert_bundle(pack_litertlm(parts), "out", target="genai")
