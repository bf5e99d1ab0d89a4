"""scripts/batches.py: batches of the models in assets equal single runs."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ASSETS = ROOT / "assets" / "models"
SPEC = spec_from_file_location("batches", ROOT / "scripts" / "batches.py")
assert SPEC is not None
assert SPEC.loader is not None
SCRIPT = module_from_spec(SPEC)
SPEC.loader.exec_module(SCRIPT)


@pytest.mark.parametrize(
    "name", ["transformer_float32", "keywords_int8", "keywords_dynamic_range", "unet_float16"]
)
@pytest.mark.parametrize("batch", [3, "n"])
def test_networks(name: str, batch: int | str) -> None:
    assert SCRIPT.check_network(ASSETS / f"{name}.tflite", batch) == ("equal", "")


def test_counts(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert SCRIPT.main([str(ASSETS / "keywords_float32.tflite")]) == 0
    assert capsys.readouterr().out == "1 equal\n"
    (tmp_path / "bad.tflite").write_bytes(b"none")
    assert SCRIPT.main([str(tmp_path)]) == 0
    assert "1 unsupported" in capsys.readouterr().out
