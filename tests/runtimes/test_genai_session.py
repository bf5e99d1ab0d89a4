"""The chat of docs/language-models.md runs as written, and gives LiteRT's tokens."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
import sentencepiece

from tests.runtimes.environments import GENAI, ROOT
from tests.support.decoder import build_decoder, build_language_model
from tests.targets.genai.test_genai import run_litert
from tests.targets.genai.test_tokenizer import build_task, train
from tflite2onnx.cli import main

_PROGRAM = re.compile(r"^```python\n(import sys\n.*?)^```$", re.DOTALL | re.MULTILINE)
_MOST = 6  # tokens of the prompt and of the answer


def answer_with_litert(data: bytes, prompt: str) -> str:
    """Return the letters that LiteRT chooses after a prompt."""
    tokens = [3 + "abcdefghijkl".index(letter) for letter in prompt]
    while len(tokens) < _MOST:
        (*_, logits) = run_litert(data, tokens)
        tokens.append(int(np.argmax(logits)))
    return "".join("abcdefghijkl"[token - 3] for token in tokens[len(prompt) :])


def test_chat_of_the_document_gives_tokens_of_litert(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not GENAI.is_made:
        pytest.skip(f"not installed: {GENAI.packages[0]}")
    monkeypatch.chdir(tmp_path)
    data = build_decoder()
    Path("tiny.litertlm").write_bytes(build_language_model(data))
    assert main(["tiny.litertlm", "chat", "--target", "genai", "-q"]) == 0
    found = _PROGRAM.search((ROOT / "docs" / "language-models.md").read_text())
    assert found is not None
    Path("program.py").write_text(found[1])
    done = subprocess.run(
        [GENAI.command[0], "program.py"],
        input="abc\nlk\n",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [answer_with_litert(data, line) for line in ("abc", "lk")]


CHAT = """
import json
import onnxruntime_genai as og
tokenizer = og.Tokenizer(og.Model("chat"))
messages = json.dumps([{"role": "user", "content": "Two  words, 12 \u65e5"}])
text = tokenizer.apply_chat_template(messages, add_generation_prompt=True)
print(json.dumps([int(token) for token in tokenizer.encode(text)]))
"""


def test_chat_template_and_sentencepiece_give_tokens_of_litert(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A `.task` file of MediaPipe has the texts around a message, and a SentencePiece model."""
    if not GENAI.is_made:
        pytest.skip(f"not installed: {GENAI.packages[0]}")
    monkeypatch.chdir(tmp_path)
    Path("model.task").write_bytes(build_task())
    assert main(["model.task", "chat", "--target", "genai", "-q"]) == 0
    done = subprocess.run(
        [GENAI.command[0], "-c", CHAT], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    expected = sentencepiece.SentencePieceProcessor(model_proto=train("bpe", "GEMMA"))
    text = "Be kind.\n<turn>user\nTwo  words, 12 \u65e5</turn>\n<turn>model\n"
    assert json.loads(done.stdout) == [expected.bos_id(), *expected.encode(text)]
