"""The documents are a site without dead links, in which each page is found."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest

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
