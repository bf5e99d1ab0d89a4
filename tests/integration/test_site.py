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
