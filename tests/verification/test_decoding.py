"""Language models: both runtimes choose the same tokens, each with its own caches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.support.decoder import build_decoder, build_embedder, build_language_model
from tests.support.small import chain
from tests.test_bundle import archive
from tflite2onnx import convert
from tflite2onnx.cli import main
from tflite2onnx.cli.verdict import describe_decodings
from tflite2onnx.errors import VerifyError
from tflite2onnx.verification import decoding
from tflite2onnx.verification.decoding import Decoding, _compare_logits, run_step, verify_decoders

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tflite2onnx import Result
    from tflite2onnx.verification.decoding import Step
    from tflite2onnx.verification.onnx_model import ConvertedModel

KEYS = ("prefill_3", "decode")
STEPS = 5  # the caches of the tiny decoder hold 8 tokens


def convert_signatures(data: bytes) -> dict[str, Result]:
    """Return the conversions of both signatures."""
    return {key: convert(data, signature=key) for key in KEYS}


def verify_one(
    data: bytes, converted: Mapping[str, Result], steps: int = STEPS, prompt: Sequence[int] = ()
) -> Decoding:
    """Verify a model without a name."""
    named: dict[tuple[str, str | None], ConvertedModel] = {
        ("", key): each for key, each in converted.items()
    }
    (found,) = verify_decoders({"": data}, named, prompt, steps).values()
    return found


@pytest.mark.parametrize("mask", ["", "bool", "float32"])
def test_right_model_chooses_tokens_of_litert(mask: str) -> None:
    """The prompt goes through prefill, and its last token through decode."""
    data = build_decoder(mask=mask, tokens_first=not mask)
    found = verify_one(data, convert_signatures(data))
    assert found.ok
    assert found.signatures == KEYS
    assert (len(found.prompt), found.equal, len(found.tokens)) == (4, STEPS, STEPS)
    assert found.difference < 1e-5
    assert str(found).startswith("prefill_3 and decode: 5 of 5 tokens equal LiteRT's; logits")


def test_litert_multiplies_the_real_numbers_of_constants_that_it_misreads() -> None:
    data = build_decoder(extra="product")
    found = verify_one(data, convert_signatures(data))
    assert (found.ok, found.equal) == (True, STEPS)
    assert found.difference < 1e-5
    (operator,) = found.misread
    assert operator.startswith("BATCH_MATMUL (operator ")
    lines, status = describe_decodings("model", {"": found})
    assert status == 0
    assert lines[1].startswith(f"LiteRT's kernel misreads the constants of {operator}")


@pytest.mark.parametrize("count", [1, 2, 4, 5, 7, 8])
def test_prompts_may_be_longer_than_prefill(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole parts of a prompt go through prefill, the rest through decode."""
    data, places = build_decoder(), []

    def note(step: Step, tokens: Sequence[int], place: int, caches: Any) -> Any:
        places.append((len(tokens), place))
        return run_step(step, tokens, place, caches)

    monkeypatch.setattr(decoding, "run_step", note)
    prompt = [3, 9, 7, 1, 12, 5, 2, 14][:count]
    found = verify_one(data, convert_signatures(data), 1, prompt)
    assert (found.ok, found.equal, found.prompt) == (True, 1, tuple(prompt))
    whole = max(count - 1, 3) // 3 * 3
    parts = [(3, place) for place in range(0, whole, 3)]
    rest = [(1, place) for place in range(min(whole, count - 1), count)]
    assert places[1:] == 3 * [*parts, *rest[:-1]] + 3 * rest[-1:]


def test_wrong_model_chooses_other_tokens_than_litert() -> None:
    """A model with other weights chooses other tokens than LiteRT."""
    other = convert_signatures(build_decoder(seed=2))
    found = verify_one(build_decoder(), other)
    assert not found.ok
    assert found.equal < STEPS
    assert not found.to_dict()["ok"]


def test_another_token_is_right_if_logits_of_litert_tie() -> None:
    """LiteRT's two best logits tie if they are closer than the logits of LiteRT's own kernels."""
    rows = [np.array(row, np.float32) for row in ([0, 1, 1.1], [0, 1, 1.3], [0, 1.2, 1.1])]
    found = _compare_logits(KEYS, [1], [rows])
    assert found.wrong == ()
    assert "0 of 1 tokens equal LiteRT's and 1 where LiteRT's two best logits tie;" in str(found)
    rows[1] = rows[0]
    assert _compare_logits(KEYS, [1], [rows]).wrong == (0,)


def test_models_that_are_no_language_models_are_left_out() -> None:
    data = build_decoder(extra="extra")
    named: dict[tuple[str, str | None], ConvertedModel] = {
        ("", key): each for key, each in convert_signatures(data).items()
    }
    assert verify_decoders({"": data}, named) == {}
    assert verify_decoders({"": data}, {("", "decode"): convert(data)}) == {}


def test_wrong_prompts_and_files_are_refused() -> None:
    data = build_decoder()
    with pytest.raises(VerifyError, match="must have tokens from 0 to 15, got 16, -1"):
        verify_one(data, convert_signatures(data), prompt=[3, 16, -1])
    with pytest.raises(VerifyError, match="must be of the signature prefill_3"):
        verify_one(data, {key: convert(chain("ABS")) for key in KEYS})
    other = convert_signatures(build_decoder(extra="extra"))
    with pytest.raises(VerifyError, match="the input extra of a language model is not known"):
        verify_one(data, other)


def test_embedder_of_a_bundle_computes_the_rows() -> None:
    """A decoder that reads embeddings gets those of the embedder, which has one signature."""
    models = {"decoder": build_decoder(extra="embeddings"), "embedder": build_embedder()}
    named: dict[tuple[str, str | None], ConvertedModel] = {
        ("decoder", key): each for key, each in convert_signatures(models["decoder"]).items()
    }
    assert verify_decoders(models, named) == {}
    named["embedder", None] = convert(models["embedder"])
    (found,) = verify_decoders(models, named, steps=STEPS).values()
    assert (found.ok, found.equal) == (True, STEPS)
    alone = verify_one(build_decoder(), convert_signatures(build_decoder()))
    assert found.tokens == alone.tokens


def test_models_for_gpus_read_the_range_of_the_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tflite2onnx.verification.decoding.STEPS", STEPS)
    data = build_decoder(extra="param_tensor", prefills=(3, 5))
    named: dict[tuple[str, str | None], ConvertedModel] = {
        ("", key): convert(data, signature=key) for key in (*KEYS, "prefill_5")
    }
    (found,) = verify_decoders({"": data}, named).values()
    assert found.ok
    assert found.equal == STEPS


def test_verify_command_compares_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`verify` compares the tokens of language models in containers, and of single models."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tflite2onnx.verification.decoding.STEPS", STEPS)
    Path("a.litertlm").write_bytes(build_language_model(build_decoder()))
    Path("a.tflite").write_bytes(build_decoder())
    Path("b.task").write_bytes(archive({"TF_LITE_PREFILL_DECODE": build_decoder(seed=2)}))
    assert main(["a.litertlm", "out", "-q"]) == 0
    assert main(["verify", "a.litertlm", "out"]) == 0
    line = "prefill_3 and decode: 5 of 5 tokens equal LiteRT's"
    assert f"prefill_decode: {line}" in capsys.readouterr().out
    assert main(["a.tflite", "--signature", "all", "-o", "single", "-q"]) == 0
    assert main(["verify", "a.tflite", "single"]) == 0
    assert f"\n{line}" in capsys.readouterr().out
    assert main(["verify", "b.task", "--json", "--prompt", "3,1"]) == 0
    told = json.loads(capsys.readouterr().out)["decodings"]["TF_LITE_PREFILL_DECODE"]
    assert (told["equal"], told["prompt"]) == (STEPS, [3, 1])

    def choose_wrongly(*_: object, **__: object) -> Decoding:
        return Decoding(KEYS, (1,), (2, 3), (2, 4), 0.5, 1e-5, (1,))

    name = "tflite2onnx.verification.decoding._verify_decoding"
    monkeypatch.setattr(name, choose_wrongly)
    assert main(["verify", "-q", "a.tflite", "single"]) == 2
    assert "a.tflite: LiteRT chooses other tokens in the steps 1" in capsys.readouterr().err
