"""Evaluation of a page in headless Chromium, after its scripts have run.

Debian's package `chromium` is enough; Google Chrome works, too.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
# Script of an outer page that shows the tested page in a frame of the requested width.
_FRAME = """<!doctype html><html><body style="margin:0"><iframe src="{page}"
style="border:0;width:{width}px;height:900px"></iframe><pre id="told"></pre><script>
addEventListener("load", async () => {{
  const view = document.querySelector("iframe").contentWindow, page = view.document;
  const told = await (async () => {{ {script} }})().catch((error) => ({{error: String(error)}}));
  document.getElementById("told").textContent = JSON.stringify(told);
}});
</script></body></html>"""


def find_browser() -> str:
    """Return the path of a browser; if there is none, the test is skipped."""
    found = next((path for name in _NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("Chromium is not installed (apt-get install chromium)")
    return found


def evaluate_script(page: Path, script: str, *, width: int, dark: bool = False) -> Any:
    """Return the result of a script, which may wait.

    `page` and `view` are the document and the window of the page.
    """
    frame = page.with_name(f"frame_{width}.html")
    frame.write_text(_FRAME.format(page=page.name, width=width, script=script))
    command = [
        find_browser(),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--allow-file-access-from-files",
        "--disable-dev-shm-usage",
        f"--user-data-dir={page.parent / 'profile'}",
        "--virtual-time-budget=5000",
        f"--window-size={max(width, 500)},900",
        f"--blink-settings=preferredColorScheme={0 if dark else 1}",
        "--dump-dom",
        frame.as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    text = done.stdout.partition('<pre id="told">')[2].partition("</pre>")[0]
    return json.loads(unescape(text))
