"""scripts/parity.py: the networks that it counts, and the differences that it describes."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tests.quantized.values import add_input, all_integers, output_tensor
from tests.support import Build, run_tflite

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "parity.py"
ASSETS = SCRIPT.parent.parent / "assets" / "models"
FINE, PRODUCT = (0.02, -3), (0.01, 4)


def chain() -> bytes:
    """Return a model of two operators: LiteRT rounds each product of the last, ONNX the result."""
    m = Build()
    x = add_input(m, all_integers("int8"), FINE)
    (copy,) = m.op("RESHAPE", [x], [output_tensor(m, [64, 4], "int8", FINE)], new_shape=[64, 4])
    product = output_tensor(m, [64], "int8", PRODUCT)
    m.output(*m.op("REDUCE_PROD", [copy, m.constant([1])], [product], keep_dims=False))
    return m.bytes()


def run_script(folder: Path, *arguments: str) -> list[str]:
    """Run the script in a process; return the lines of its output."""
    command = [sys.executable, str(SCRIPT), str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def test_networks_of_a_folder_are_counted_as_equal(tmp_path: Path) -> None:
    for name in ("keywords_int8", "keywords_uint8", "keywords_float32", "keywords_int16x8"):
        shutil.copy(ASSETS / f"{name}.tflite", tmp_path)
    (tmp_path / "products.tflite").write_bytes(chain())
    (tmp_path / "text.tflite").write_text("no model")
    eight, unsigned, products, text, last = run_script(tmp_path, "--samples", "2")
    assert eight == "equal  keywords_int8.tflite"
    assert unsigned == "equal  keywords_uint8.tflite"
    assert products.startswith("differs  products.tflite  by 1 at most  operator 1, REDUCE_PROD: ")
    assert "1 at most; not delegated to XNNPACK" in products
    assert text.startswith("failed  text.tflite  ")
    assert last == "2 of 3 networks are equal, 1 do not run"


def test_time_limit_ends_a_comparison() -> None:
    line, _ = run_script(ASSETS / "keywords_int8.tflite", "--timeout", "0.01")
    assert "it takes longer than 0 seconds" in line


def test_more_outputs_show_inner_tensors_of_litert(script: Any) -> None:
    data = chain()
    x = np.arange(256).astype(np.uint8).view(np.int8)
    own, copy = run_tflite(script.with_more_outputs(data, [1, 2]), [x])
    assert (own == run_tflite(data, [x])[0]).all()
    assert (copy == x.reshape(64, 4)).all()
