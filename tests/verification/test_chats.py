"""verification/chats.py: the folder of a language model, in place of whose runtime LiteRT runs.

tests/runtimes/test_genai_session.py has the runtime itself, where it is installed.
"""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.decoder import build_decoder, build_language_model
from tests.targets.genai.test_genai import run_litert
from tflite2onnx.cli import main
from tflite2onnx.verification import decoding

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy as np

DATA = build_decoder()


def make_runtime(data: bytes) -> SimpleNamespace:
    """Return a module like onnxruntime-genai, which loads any folder and runs a TFLite decoder."""

    class Generator:
        def __init__(self, *_: object) -> None:
            self._tokens: list[int] = []

        def append_tokens(self, tokens: np.ndarray[Any, Any]) -> None:
            self._tokens += tokens.reshape(-1).tolist()

        def get_logits(self) -> np.ndarray[Any, Any]:
            *_, logits = run_litert(data, self._tokens)
            return logits

    return SimpleNamespace(
        Config=lambda _: SimpleNamespace(overlay=json.loads),
        Model=lambda _: None,
        GeneratorParams=lambda _: SimpleNamespace(set_search_options=lambda **_: None),
        Generator=Generator,
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a decoder, whose runtime gives the logits of the same decoder."""
    monkeypatch.setitem(sys.modules, "onnxruntime_genai", make_runtime(DATA))
    (tmp_path / "chat.litertlm").write_bytes(build_language_model(DATA))
    assert main([str(tmp_path / "chat.litertlm"), str(tmp_path), "--target", "genai", "-q"]) == 0
    return tmp_path


@pytest.mark.parametrize(("words", "count"), [([], 3), (["--prompt", "3,4"], 2)])
def test_equal_tokens_are_right(
    folder: Path, words: list[str], count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """A prompt and the tokens after it fit into the caches."""
    assert main(["verify", str(folder / "chat.litertlm"), str(folder), *words]) == 0
    line = capsys.readouterr().out.splitlines()[0]
    assert line.startswith("3 of 3 tokens equal LiteRT's, 0 ties, 0 wrong")
    assert f"(prompts of {count} tokens)" in line
    assert main(["verify", str(folder / "chat.litertlm"), str(folder), *words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["chat"]["ok"]


def test_prompts_have_the_weights_of_the_decoder(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The folder has no weights of prefill, so LiteRT computes prompts with those of decode."""
    data = build_decoder(extra="scaled")
    monkeypatch.setitem(sys.modules, "onnxruntime_genai", make_runtime(data))
    bundle = folder / "scaled.litertlm"
    bundle.write_bytes(build_language_model(data))
    assert main(["verify", str(bundle), str(folder)]) == 0
    assert "(prompts of 3 tokens with the weights of decode)" in capsys.readouterr().out


def test_plain_kernels_compute_prompts_token_by_token(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The distance of LiteRT's kernels includes that of both steps, for a prompt and a token."""
    counts, run = [], decoding.run_step

    def note(step: Any, tokens: Sequence[int], place: int, caches: Any) -> Any:
        counts.append(len(tokens))
        return run(step, tokens, place, caches)

    monkeypatch.setattr(decoding, "run_step", note)
    assert main(["verify", str(folder / "chat.litertlm"), str(folder), "--prompt", "3,4"]) == 0
    # The size of the logits; the prompt by prefill, and token by token; the steps of both.
    assert counts == [1, 3, 1, *3 * [1, 1]]


def test_other_tokens_are_wrong(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime_genai", make_runtime(build_decoder(seed=5)))
    assert main(["verify", str(folder / "chat.litertlm"), str(folder)]) == 2
    assert "LiteRT chooses other tokens in the steps" in capsys.readouterr().err
