"""onnxruntime-genai runs the folders of its target, and gives LiteRT's tokens."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import sentencepiece

from tests.runtimes.environments import GENAI, ROOT
from tests.support.decoder import build_decoder, build_language_model
from tests.support.documents import list_blocks, make_environment
from tests.targets.genai.test_genai import run_litert
from tests.targets.genai.test_tokenizer import build_task, train
from tflite2onnx.cli import main

_SECTION = re.compile(r"^### A chat, from a container$(.*?)^## ", re.DOTALL | re.MULTILINE)
_MOST = 6  # tokens of the prompt and of the answer


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The environment of a process that has this package, LiteRT and onnxruntime-genai."""
    if not GENAI.is_made:
        pytest.skip(f"not installed: {GENAI.packages[0]}")
    modules = tmp_path / "modules"
    modules.mkdir()
    for package in GENAI.folder.glob(f"lib/python*/site-packages/{GENAI.module}"):
        (modules / GENAI.module).symlink_to(package)
    return {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{modules}"}


def run_tool(*words: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tflite2onnx", *words],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def answer_with_litert(data: bytes, prompt: str) -> str:
    """Return the letters that LiteRT chooses after a prompt."""
    tokens = [3 + "abcdefghijkl".index(letter) for letter in prompt]
    while len(tokens) < _MOST:
        (*_, logits) = run_litert(data, tokens)
        tokens.append(int(np.argmax(logits)))
    return "".join("abcdefghijkl"[token - 3] for token in tokens[len(prompt) :])


def test_blocks_of_the_chat_run_in_order(tmp_path: Path, environment: dict[str, str]) -> None:
    """The section of the document runs as written, and gives LiteRT's tokens."""
    section = _SECTION.search((ROOT / "docs" / "language-models.md").read_text())
    assert section is not None
    (_, commands), (_, program) = list_blocks(section[1])
    (tmp_path / "program.py").write_text(program)
    (tmp_path / "commands.sh").write_text(f"{commands}echo\npython program.py\n")
    done = subprocess.run(
        ["/bin/bash", "-e", "commands.sh"],
        cwd=tmp_path,
        env={**make_environment(tmp_path / "programs"), "PYTHONPATH": environment["PYTHONPATH"]},
        input="abc\nabcdefgh\nlk\n",
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, f"{done.stdout}\n{done.stderr}"
    *_, verdict, _, first, refused, last = done.stdout.splitlines()
    assert verdict.startswith("3 of 3 tokens equal LiteRT's, 0 ties, 0 wrong (prompts of 3 tokens)")
    data = build_decoder()
    assert [first, last] == [answer_with_litert(data, line) for line in ("abc", "lk")]
    assert refused == "at most 5 letters, please"


def test_folder_of_another_model_is_wrong(tmp_path: Path, environment: dict[str, str]) -> None:
    for seed in (1, 5):
        bundle = build_language_model(build_decoder(seed=seed))
        (tmp_path / f"{seed}.litertlm").write_bytes(bundle)
    own, other = (str(tmp_path / f"{seed}.litertlm") for seed in (1, 5))
    assert main([own, str(tmp_path / "chat"), "--target", "genai", "-q"]) == 0
    for prompt in ([], ["--prompt", "3,4"]):
        words = ["verify", own, str(tmp_path / "chat"), "--json", *prompt]
        done = run_tool(*words, environment=environment)
        assert done.returncode == 0, done.stderr
        chat = json.loads(done.stdout)["chat"]
        assert [chat["ok"], len(chat["decodings"])] == [True, 1]
    done = run_tool("verify", other, str(tmp_path / "chat"), environment=environment)
    assert done.returncode == 2
    assert "LiteRT chooses other tokens in the steps" in done.stderr
    done = run_tool(other, str(tmp_path / "json"), "--target", "genai", "--verify", "--json",
                    environment=environment)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["models"][0]["chat"]["ok"]


STEPS = """
import json
import numpy as np
import onnxruntime_genai as og
model = og.Model("chat")
for parts in json.loads(input()):
    params = og.GeneratorParams(model)
    params.set_search_options(max_length=6, do_sample=False)
    generator = og.Generator(model, params)
    for part in parts:
        generator.append_tokens(np.array([part], np.int32))
    print(np.asarray(generator.get_logits()).reshape(-1).tolist())
"""


def test_linear_attention_keeps_its_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The inputs and outputs of states share memory, and a prompt may come in parts."""
    if not GENAI.is_made:
        pytest.skip(f"not installed: {GENAI.packages[0]}")
    monkeypatch.chdir(tmp_path)
    tokens = [1, 4, 5, 6, 3]
    bundle = build_language_model(build_decoder(extra="recurrence", depth=16))
    Path("model.litertlm").write_bytes(bundle)
    assert main(["model.litertlm", "chat", "--target", "genai", "-q"]) == 0
    parts = [[tokens], [tokens[:2], tokens[2:]], [[token] for token in tokens]]
    done = subprocess.run(
        [GENAI.command[0], "-c", STEPS],
        input=json.dumps(parts),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *_, want = run_litert(build_decoder(extra="formulas", depth=16), tokens)
    for line in done.stdout.splitlines():
        got = np.array(json.loads(line))
        np.testing.assert_allclose(got, want.reshape(-1), rtol=0, atol=1e-6 * np.ptp(want))
    assert len(done.stdout.splitlines()) == len(parts)


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
