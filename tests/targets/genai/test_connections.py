"""`--target genai`: a decoder computes what other models of the bundle compute for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.support import Build
from tests.support.decoder import build_decoder, build_embedder, build_language_model
from tests.support.litertlm import model_part, pack_litertlm
from tests.support.split_decoder import TABLE, WIDTH, build_table, list_split_parts
from tests.targets.genai.test_genai import TOKENS, run_decoder, run_litert
from tflite2onnx import convert_bundle
from tflite2onnx.cli import main
from tflite2onnx.errors import BundleError
from tflite2onnx.reader.containers.bundle import read_bundle
from tflite2onnx.verification.decoding import verify_decoders

if TYPE_CHECKING:
    from tflite2onnx.verification.onnx_model import ConvertedModel

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change to an empty folder."""
    monkeypatch.chdir(tmp_path)


def test_embedder_becomes_a_part_of_the_decoder() -> None:
    """The decoder reads tokens, and gives LiteRT's logits of a decoder with its own table."""
    data = build_language_model(
        build_decoder(extra="embeddings"), model_part(build_embedder(), "embedder")
    )
    convert_bundle(data, "out", target="genai")
    assert {path.name for path in Path("out").glob("*.onnx")} == {"model.onnx"}
    wanted = run_litert(build_decoder(), TOKENS)
    for want, got in zip(wanted, run_decoder(Path("out/model.onnx"), TOKENS), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-5)


def compute_logits(tokens: list[int]) -> list[np.ndarray[Any, Any]]:
    """Return the logits after each token."""
    rows = TABLE[tokens]
    before = [np.abs(rows[:i]).sum(0) * 2 * rows[:i].sum(0) for i in range(len(rows))]
    return [row + sums for row, sums in zip(rows, before, strict=True)]


@pytest.mark.parametrize("reverse", [False, True])
def test_masks_and_updates_of_caches_become_parts_of_the_decoder(*, reverse: bool) -> None:
    """Models for NPUs have a further model, whose sub-graphs call sub-graphs."""
    parts = list_split_parts(build_table())
    convert_bundle(pack_litertlm(parts[::-1] if reverse else parts), "out", target="genai")
    assert {path.name for path in Path("out").glob("*.onnx")} == {"model.onnx"}
    tokens = [3, 1, 2, 0, 3]
    made = run_decoder(Path("out/model.onnx"), tokens)
    for want, got in zip(compute_logits(tokens), made, strict=True):
        np.testing.assert_allclose(got.reshape(-1), want, atol=1e-5)


def test_models_of_a_step_are_verified_together() -> None:
    bundle = read_bundle(pack_litertlm(list_split_parts(build_table())))
    results = convert_bundle(bundle, "out")
    files: dict[tuple[str, str | None], ConvertedModel] = {
        ("aux", key): results[f"aux ({key})"] for key in ("decode_mask", "decode_cache_update")
    }
    files["embedder", None] = results["embedder"]
    for key in ("prefill", "decode"):  # two signatures of one sub-graph
        files["prefill_decode", key] = results["prefill_decode"]
    (found,) = verify_decoders(bundle.models, files, [1, 2], 5).values()
    assert (found.ok, found.equal) == (True, 5)


def test_models_that_do_not_fit_are_refused(capsys: Captured) -> None:
    """The input must be named, and have as many elements as the other model computes."""
    data = pack_litertlm(list_split_parts(build_table(WIDTH - 1)))
    with pytest.raises(BundleError, match=r"embeddings must be float32\[1, 1, 4\] in all models"):
        convert_bundle(data, "out", target="genai")
    m = Build()
    token, unnamed = m.input([1, 1], dtype="int32"), m.input([1, 1, WIDTH])
    (rows,) = m.op("ABS", [unnamed], [[1, 1, WIDTH]])
    m.output(rows)
    m.signature("serving_default", {"ids": token}, {"embedded": rows})
    Path("a.litertlm").write_bytes(pack_litertlm(list_split_parts(m.bytes())))
    assert main(["a.litertlm", "out", "--target", "genai"]) == 1
    assert "serving_default must name all inputs and outputs" in capsys.readouterr().err
    assert not Path("out").exists()
