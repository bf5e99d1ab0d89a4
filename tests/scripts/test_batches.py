"""scripts/batches.py: batches of the models in assets equal single runs."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from tests.support import Build

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
def test_batches_of_networks_equal_single_runs(name: str, batch: int | str) -> None:
    assert SCRIPT.check_network(ASSETS / f"{name}.tflite", batch) == ("equal", "")


def test_image_sizes_are_dynamic_unless_fixed_by_a_constant() -> None:
    """Heights and widths are dynamic, unless a constant of the network fixes them."""
    equal = SCRIPT.check_network(ASSETS / "mobilenet_dynamic_range.tflite", "n", images=True)
    assert equal == ("equal", "")
    outcome, reason = SCRIPT.check_network(ASSETS / "unet_float32.tflite", "n", images=True)
    assert outcome == "fixed"
    assert reason.startswith("the size height cannot be dynamic because CONCATENATION")


def test_image_axes_are_found_in_shapes() -> None:
    shapes = [(1, 24, 32, 3), (1, 3, 24, 32), (1, 1, 40, 1), (1, 49, 10), (5,)]
    axes = [[*SCRIPT._find_image_axes(shape)] for shape in shapes]  # noqa: SLF001
    assert axes == [[1, 2], [2, 3], [1, 2], [], []]


def test_batches_of_strings_equal_single_runs(tmp_path: Path) -> None:
    m = Build()
    x = m.input([1, 2], name="x", dtype="string")
    m.output(*m.op("RESHAPE", [x, m.constant([1, 2, 1])], [m.tensor([1, 2, 1], dtype="string")]))
    path = tmp_path / "words.tflite"
    path.write_bytes(m.bytes())
    assert SCRIPT.check_network(path, 3) == ("equal", "")
    assert SCRIPT.check_network(path, "n") == ("equal", "")


def test_script_prints_counts_of_outcomes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert SCRIPT.main([str(ASSETS / "keywords_float32.tflite")]) == 0
    assert capsys.readouterr().out == "1 equal\n"
    (tmp_path / "bad.tflite").write_bytes(b"none")
    assert SCRIPT.main([str(tmp_path)]) == 0
    assert "1 unsupported" in capsys.readouterr().out
