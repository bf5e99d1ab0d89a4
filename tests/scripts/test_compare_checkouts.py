"""scripts/compare_checkouts.py: the differences that it finds between two checkouts."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "compare_checkouts.py"
WRITE = "open(output, 'w').write(str(options))"


def checkout(folder: Path, body: str) -> Path:
    """Create a checkout whose `convert` has this body."""
    package = folder / "tflite2onnx"
    package.mkdir(parents=True)
    code = f"import os\n\ndef convert(model, output, **options):\n    {body}\n"
    (package / "__init__.py").write_text(code)
    return folder


def compare(*arguments: Path) -> subprocess.CompletedProcess[str]:
    """Run the script in a process."""
    words = [sys.executable, str(SCRIPT), *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def test_a_checkout_is_equal_to_itself() -> None:
    done = compare(ROOT, ROOT, ROOT / "assets" / "models" / "keywords_int8.tflite")
    assert done.stdout.startswith("1 models, 5 conversions: 0 differ (the new checkout makes 5 ")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("body", "after"),
    [
        (f"{WRITE} if options else open(output, 'w').write('')", "ONNX file e3b0c44298fc1c14"),
        (f"{WRITE} if options else 1 / 0", "ZeroDivisionError: division by zero"),
        (f"{WRITE} if options else os._exit(3)", "the process ended with status 3"),
    ],
)
def test_the_differing_conversion_is_named(tmp_path: Path, body: str, after: str) -> None:
    old, new = checkout(tmp_path / "old", WRITE), checkout(tmp_path / "new", body)
    (tmp_path / "models").mkdir()
    model = tmp_path / "models" / "a.tflite"
    model.write_bytes(b"")
    done = compare(old, new, tmp_path / "models")
    assert done.returncode == 1
    heading, before, line, summary = done.stdout.splitlines()
    assert heading == f"{model} (default):"
    assert before.startswith("  old: ONNX file ")
    assert line == f"  new: {after}"
    assert summary.startswith("1 models, 5 conversions: 1 differ")


def test_only_the_first_line_of_an_error_counts(tmp_path: Path) -> None:
    old, new = (
        checkout(tmp_path / name, f"raise ValueError('a\\n{name}')") for name in ("old", "new")
    )
    done = compare(old, new, tmp_path / "a.tflite")
    assert "0 differ (the new checkout makes 0 files and 5 errors)" in done.stdout
    assert done.returncode == 0


def test_a_checkout_that_cannot_be_imported_is_an_error(tmp_path: Path) -> None:
    done = compare(tmp_path, ROOT, tmp_path / "a.tflite")
    assert done.returncode == 1
    assert done.stdout == ""
    assert str(tmp_path) in done.stderr
