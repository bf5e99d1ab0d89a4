"""The description of the processor."""

import platform
from pathlib import Path

import pytest

from tflite2onnx.utils import processor
from tflite2onnx.utils.processor import describe_processor


@pytest.mark.parametrize(
    ("cpuinfo", "want"),
    [
        (
            "model name : X\ncpu family : 6\nmodel : 85\n\nmodel name : Y\n",
            "X (family 6, model 85)",
        ),
        ("model name : X\nmodel : 85\n", "X"),
        ("", "a machine"),
    ],
)
def test_processor_has_the_name_of_the_first_core(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cpuinfo: str, want: str
) -> None:
    """Without a name in the file, the machine type of the system is the name."""
    file = tmp_path / "cpuinfo"
    file.write_text(cpuinfo)
    monkeypatch.setattr(platform, "machine", lambda: "a machine")
    monkeypatch.setattr(processor, "_CPUINFO", file)
    assert describe_processor() == f"{want}: unknown"
