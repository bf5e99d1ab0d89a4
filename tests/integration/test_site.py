"""The documents are a site without dead links, in which each page is found."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from tests.support.browser import evaluate_script

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the built site; a warning, such as a dead link, ends the build."""
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(
        words,
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_links_to_the_repository_lead_to_files(site: Path) -> None:
    """Documents link to files outside of docs/; in the site these links lead to the repository."""
    address = re.compile(r'"https://github\.com/zhenhuaw-me/tflite2onnx/blob/main/([^"#]*)')
    found = {
        unescape(path)
        for page in site.rglob("*.html")
        for path in address.findall(page.read_text())
    }
    assert {"README.md", "CHANGELOG.md", "examples/faces.py"} <= found
    assert [path for path in found if not (ROOT / path).exists()] == []


def test_lists_and_tables_are_read_as_on_github(site: Path) -> None:
    """A table inside of a list is a table, and a `|` in its code is not escaped."""
    assert re.search(r"<li>(?:(?!</li>).)*<table>", read_page(site, "performance"), re.DOTALL)
    reference = read_page(site, "command-line")
    assert "auto|int8|uint8" in re.sub("<[^>]*>", "", reference)


def test_each_page_is_searched(site: Path) -> None:
    index = (site / "search" / "search_index.json").read_text()
    for document in (ROOT / "docs").rglob("*.md"):
        place = document.relative_to(ROOT / "docs").with_suffix("").as_posix()
        assert f'"location":"{"" if place == "index" else place + "/"}"' in index, place


def read_page(site: Path, name: str) -> str:
    return (site / name / "index.html").read_text()


# What a first-time reader wants, the links to click from the first page, and words of the answer.
JOBS = [
    ("see a first conversion", ["tutorial"], "tflite2onnx inspect"),
    ("run an int8 classifier in OpenVINO", ["int8 classifier", "OpenVINO"], "--target openvino"),
    ("get boxes from a YOLO network", ["YOLO with boxes"], "--postprocess"),
    ("keep the layout NHWC", ["my layout"], "--io-layout tflite"),
    ("verify on my pictures", ["my data"], "--image"),
    ("know whether an operator is converted", ["all operators"], "DEPTHWISE_CONV_2D"),
    ("convert in spite of a custom operator", ["custom operator"], "--allow-custom"),
    ("know what CLOSE means", ["Verification", "Verdicts"], "UNPROVEN"),
    (
        "run several samples at once",
        ["Questions", "How do I run several samples at once?"],
        "batch",
    ),
    ("compare with other converters", ["Comparison"], "tf2onnx"),
]


@pytest.mark.parametrize(("job", "clicks", "words"), JOBS)
def test_ten_jobs_are_found_in_two_clicks(
    site: Path, job: str, clicks: list[str], words: str
) -> None:
    """Each link is on the page that the click before it opens; the last leads to the answer."""
    assert len(clicks) <= 2, job
    page, part = site / "index.html", ""
    for label in clicks:
        text = page.read_text()
        links = re.findall(r'<a\s[^>]*?href="([^"]*)"[^>]*>(.*?)</a>', text, re.DOTALL)
        called = {" ".join(unescape(re.sub("<[^>]*>", "", n)).split()): link for link, n in links}
        place, _, part = called[label].partition("#")
        page = page.parent / place / "index.html" if place else page
    answer = page.read_text().partition("<article")[2]
    answer = answer.partition(f'id="{part}"')[2].partition("<h2")[0] if part else answer
    assert words in unescape(re.sub("<[^>]*>", "", answer)), job


TABLE = """
  const table = page.querySelector("article table"), rows = [...table.tBodies[0].rows];
  const field = page.querySelector(".filter input");
  const filter = (words) => {
    field.value = words;
    field.dispatchEvent(new view.Event("input"));
    return rows.filter((row) => row.offsetHeight).map((row) => row.innerText);
  };
  const heads = [...table.tHead.rows[0].cells], names = heads.map((cell) => cell.innerText.trim());
  const sort = (name) => {
    const head = heads[names.indexOf(name)];
    head.querySelector("button").click();
    const cells = [...table.tBodies[0].rows].map((row) => row.cells[head.cellIndex].innerText);
    return {cells: cells.filter(Boolean), last: cells.at(-1), aria: head.ariaSort};
  };
  const told = {names, rows: rows.length, lyra: filter("Google/Lyra int8")};
  told.none = filter("nothing");
  told.count = page.querySelector(".filter span").innerText;
  told.all = filter("").length;
  for (const key of ["up", "down"]) told[key] = sort("time");
  told.byName = sort("network");
  told.wide = page.scrollingElement.scrollWidth;
  return told;
"""


def test_table_of_networks_is_filtered_and_sorted(site: Path) -> None:
    """By clicks in a browser; rows without a time are last in both directions."""
    told: dict[str, Any] = evaluate_script(site / "models" / "index.html", TABLE, width=1400)
    assert "error" not in told, told
    assert {"task", "scheme", "converts", "beside LiteRT", "other runtimes"} <= {*told["names"]}
    assert [row.split()[0] for row in told["lyra"]] == ["lyragan", "soundstream_encoder"]
    assert (told["none"], told["count"]) == ([], f"0 of {told['rows']} rows")
    assert told["all"] == told["rows"] > 100
    times = [*map(float, told["up"]["cells"])]
    assert times == sorted(times)
    assert [*map(float, told["down"]["cells"])] == times[::-1]
    assert told["up"]["last"] == told["down"]["last"] == ""
    assert (told["up"]["aria"], told["down"]["aria"]) == ("ascending", "descending")
    names = [name.lower() for name in told["byName"]["cells"]]
    assert (min(names), max(names)) == (names[0], names[-1])
    assert told["wide"] <= 1400
