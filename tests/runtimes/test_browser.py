"""ONNX Runtime Web in Chromium: models with WebGPU, and the tutorial's pipeline.

The pipeline has models of TFLITE2ONNX_ZOO.
"""

from __future__ import annotations

import json
import os
import subprocess
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any

import numpy as np
import pytest

from tests.golden.closeness import ConvertedModel, compare_with_litert
from tests.golden.records import ZOO, Case, assets
from tests.integration.test_zoo_examples import FOUND
from tests.runtimes.environments import BROWSER, WEB
from tests.runtimes.remote import RemoteSession
from tests.support.browser import find_browser
from tests.support.faces import FACES, ROOT, detect_face
from tflite2onnx import convert, convert_bundle

_SECONDS = 120
# This script is added to the page, and sends the page's results.
_SEND = b"""<script>addEventListener("found", () => fetch("/found", {
  method: "POST", body: JSON.stringify(window.found) }));</script></head>"""


class Handler(SimpleHTTPRequestHandler):
    """Serves a folder, and puts the data that the page sends into a queue."""

    def __init__(self, queue: Queue[Any], *args: Any, **options: Any) -> None:
        self._queue = queue
        super().__init__(*args, **options)

    def do_POST(self) -> None:
        """Receive the results of the page."""
        self._queue.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is prescribed
        """Suppress the log of the server."""


@contextmanager
def serve_folder(folder: Path) -> Iterator[tuple[str, Queue[Any]]]:
    """Serve a folder on this machine; yield its address, and the queue of results."""
    queue: Queue[Any] = Queue()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, queue, directory=str(folder)))
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", queue
    finally:
        server.shutdown()
        server.server_close()


def run_page(folder: Path, page: str) -> Any:
    """Return the results that a page sends from headless Chromium."""
    with serve_folder(folder) as (address, queue):
        command = [
            find_browser(),
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            f"--user-data-dir={folder / 'profile'}",
            "--remote-debugging-port=0",
            f"{address}/{page}",
        ]
        silent = subprocess.DEVNULL
        with subprocess.Popen(command, stdout=silent, stderr=silent) as process:
            try:
                return queue.get(timeout=_SECONDS)
            finally:
                process.terminate()


@pytest.mark.nightly
@pytest.mark.skipif(not BROWSER.is_made, reason="scripts/runtimes.py --make onnxruntime-web")
@pytest.mark.parametrize(
    "case", [case for case in assets() if case.name.startswith("keywords")], ids=lambda c: c.name
)
def test_webgpu_in_a_browser_equals_litert(case: Case) -> None:
    converted = ConvertedModel.from_result(convert(case.path, target=BROWSER.target))
    with ExitStack() as stack:

        def load_model(converted: ConvertedModel) -> RemoteSession:
            session = RemoteSession(BROWSER.command, converted.model, _SECONDS)
            return stack.enter_context(closing(session))

        compare_with_litert(case.path.read_bytes(), converted, load_model)


@pytest.mark.skipif(ZOO not in os.environ, reason=f"{ZOO} names no folder")
@pytest.mark.skipif(not WEB.is_made, reason="scripts/runtimes.py --make onnxruntime-web")
@pytest.mark.parametrize("pipeline", list(zip(*FOUND, strict=False))[:1])
def test_landmarks_in_a_browser_equal_litert(pipeline: tuple[str, str], tmp_path: Path) -> None:
    """Boxes of a bundle and landmarks equal LiteRT's to a tenth of a pixel, on the drawn face."""
    bundle = tmp_path / "face.task"
    with zipfile.ZipFile(bundle, "w") as archive:
        archive.write(pipeline[0], "detector.tflite")
    convert_bundle(bundle, tmp_path, target="web", preprocess=True, postprocess=True)
    convert(pipeline[1], tmp_path / "mesh.onnx", target="web")
    (tmp_path / "node_modules").symlink_to(WEB.folder / "node_modules")
    text = (ROOT / "examples" / "faces.html").read_bytes()
    (tmp_path / "faces.html").write_bytes(text.replace(b"</head>", _SEND))
    found = run_page(tmp_path, "faces.html")
    assert "error" not in found

    picture = FACES.draw_face()
    detector, mesh = map(FACES.with_litert, pipeline)
    score, box, points = detect_face(detector, picture)
    want = FACES.landmarks(mesh, picture, FACES.mesh_region(points))
    assert found["score"] == pytest.approx(score, abs=1e-3)
    np.testing.assert_allclose(np.array(found["box"]), box, rtol=0, atol=0.1)
    np.testing.assert_allclose(np.array(found["landmarks"]), want, rtol=0, atol=0.1)
