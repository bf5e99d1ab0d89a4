"""scripts/make_gallery.py: the row of a network, and the page of a folder."""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "assets" / "models" / "keywords_int8.tflite"


@pytest.fixture(name="folder")
def make_folder(tmp_path: Path) -> Path:
    """Return the folder of a source, in the folder of all models."""
    folder = tmp_path / "models" / "owner+name"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture(name="page")
def make_page(script: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the page that the script writes about the folder of all models."""
    page = folder.parents[1] / "models.md"
    monkeypatch.setattr(script, "PAGE", page)
    monkeypatch.setattr(sys, "argv", ["make_gallery.py", str(folder.parent)])
    return page


def test_page_has_a_row_for_each_network(script: Any, folder: Path, page: Path) -> None:
    """A network is named by its file and its source; a file that is no model has the reason."""
    shutil.copy(MODEL, folder / "a__b__keywords.tflite")
    (folder / "text.tflite").write_text("no model")
    script.main()
    lines = page.read_text().splitlines()
    row, refused = (line for line in lines if "owner/name" in line)
    assert row.startswith("| keywords | [owner/name](https://github.com/owner/name) | int8")
    assert "| opset 18 |" in row
    assert "| equal to the default kernels (XNNPACK) |" in row
    assert refused.startswith("| text |")
    assert "ends with" in refused
    assert (
        "\n1 of 2 networks are converted.\nTheir outputs compared with LiteRT's: 1 equal to the "
        in page.read_text()
    )


def test_what_is_not_measured_stays_on_the_page(script: Any, folder: Path, page: Path) -> None:
    """With --nodes tasks, outputs and times stay, and the page says that the times are older."""
    shutil.copy(MODEL, folder / "keywords.tflite")
    link = "[owner/name](https://github.com/owner/name)"
    page.write_text(
        "The times were measured on a clock.\n\n"
        "| network | task | from | scheme | MB | nodes | Transposes | beside LiteRT | time |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
        f"| keywords | speech | {link} | int8 | 0.1 | 1 | 9 / 9 | equal | 7.50 |\n"
    )
    sys.argv.append("--nodes")
    for _ in range(2):
        script.main()
        assert "The times of an earlier version were measured on a clock." in page.read_text()
        (row,) = (line for line in page.read_text().splitlines() if link in line)
        assert row.startswith("| keywords | speech | ")
        assert row.endswith(" | equal | 7.50 |")
        assert "| 9 / 9 |" not in row


def test_rows_name_the_runtimes_that_agree(script: Any, folder: Path, page: Path) -> None:
    """The results of scripts/runtimes.py are a column: those that agree first, and the others."""
    shutil.copy(MODEL, folder / "a__keywords.tflite")
    verdicts = {"tract": "agrees", "iree": "agrees", "ncnn": "refused", "mnn": "not converted"}
    lines = [
        json.dumps({"model": "a__keywords.tflite", "runtime": runtime, "verdict": verdict})
        for runtime, verdict in verdicts.items()
    ]
    results = folder / "runtimes.jsonl"
    results.write_text("\n".join(lines))
    sys.argv += ["--nodes", "--runtimes", str(results)]
    script.main()
    (row,) = (line for line in page.read_text().splitlines() if "owner/name" in line)
    assert row.endswith("| iree, tract; not ncnn |")


@pytest.mark.nightly
def test_page_has_the_recorded_numbers(script: Any) -> None:
    """Nodes and Transposes are those of tests/golden/budgets.json, which the nightly run measures.

    If this fails, run scripts/make_gallery.py with --nodes.
    """
    wanted, found = Counter[tuple[str, ...]](), Counter[tuple[str, ...]]()
    budgets = json.loads((ROOT / "tests" / "golden" / "budgets.json").read_text())
    for place, record in budgets["zoo"].items():
        kind, _, name = place.partition("/")
        if kind == "published":
            network = Path(name).stem.rpartition("__")[2]
            wanted[network, str(record["nodes"]), str(record["transposes"])] += 1
    for row in script.read_rows(script.PAGE.read_text()):
        nodes, transposes = row["nodes"].replace(",", ""), row["Transposes"].partition(" / ")[2]
        found[row["network"], nodes, transposes] += 1
    assert found == wanted
