"""Run an ONNX model in ONNX Runtime Web with WebGPU, in Chromium, for another process.

python serve_browser.py BROWSER FOLDER MODEL, where FOLDER has node_modules/onnxruntime-web. Lines
are those of serve.py: the page fetches those of stdin, and those that it sends go to stdout. The
GPU is SwiftShader, which computes on the CPU.
"""

from __future__ import annotations

import subprocess
import sys
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

_PAGE = b"""<!doctype html><script src="/ort.webgpu.min.js"></script>
<script src="/serve.cjs"></script>"""
_SCRIPT = Path(__file__).with_name("serve.cjs")
_GPU = (
    "--enable-unsafe-webgpu",
    "--use-webgpu-adapter=swiftshader",
    "--enable-features=Vulkan",
)


class Handler(SimpleHTTPRequestHandler):
    """Serves the page, the model and the next line; writes the answers."""

    model = Path()

    def do_GET(self) -> None:
        """Send what the page fetches."""
        own = {"/": lambda: _PAGE, "/serve.cjs": _SCRIPT.read_bytes}
        own |= {"/model.onnx": self.model.read_bytes, "/line": sys.stdin.buffer.readline}
        if self.path not in own:
            super().do_GET()
            return
        body = own[self.path]()
        self.send_response(200)
        self.send_header("Content-Type", "text/javascript" if "." in self.path else "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        """Write an answer of the page."""
        sys.stdout.buffer.write(self.rfile.read(int(self.headers["Content-Length"])))
        sys.stdout.buffer.flush()
        self.send_response(204)
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        """Write no log."""


def main(browser: str, folder: str, model: str) -> None:
    """Serve a model to a page until the browser ends."""
    Handler.model = Path(model)
    scripts = Path(folder, "node_modules", "onnxruntime-web", "dist")

    def make_handler(*args: Any) -> Handler:
        return Handler(*args, directory=str(scripts))

    server = ThreadingHTTPServer(("127.0.0.1", 0), make_handler)
    Thread(target=server.serve_forever, daemon=True).start()
    with TemporaryDirectory() as profile:
        words = ["--headless", "--no-sandbox", "--disable-dev-shm-usage", *_GPU]
        words += [f"--user-data-dir={profile}", "--remote-debugging-port=0"]
        address = f"http://127.0.0.1:{server.server_port}/"
        subprocess.run([browser, *words, address], stdout=sys.stderr, check=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
