"""A link that opens an ONNX file in Netron, if the machine that writes the page has Netron.

A page cannot start a program. If Netron does not answer at the link, a click shows the command that
starts it. Netron serves one model at a port: the port follows from the name of the file, so that
the link opens this model only.
"""

import os
import shlex
from importlib.util import find_spec
from pathlib import Path
from zlib import crc32

from tflite2onnx.report.html import as_text

_FIRST_PORT, _PORTS = 20_000, 10_000


def write_netron_link(file: str | os.PathLike[str] | None) -> str:
    """Return a link that opens an ONNX file in Netron, "" without a file or without Netron."""
    if file is None or find_spec("netron") is None:
        return ""
    path = str(Path(file).absolute())
    port = _FIRST_PORT + crc32(os.fsencode(path)) % _PORTS
    command = shlex.join(["netron", "--port", str(port), "--browse", path])
    return (
        f'<p><a id="netron" href="http://localhost:{port}/" target="_blank"'
        f' data-command="{as_text(command)}">Open in Netron</a></p>'
    )
