"""The runtimes that ONNX models are run in, and an environment for each of them.

An environment is a folder: a virtual environment of Python, or a project of npm. Tests are skipped
if the environment of their runtime is not made.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from tests.runtimes import arm64
from tests.support.browser import find_browser
from tflite2onnx.targets.table import Target

ROOT = Path(__file__).resolve().parents[2]
# The folder of all environments, unless the variable TFLITE2ONNX_RUNTIMES names a folder.
FOLDER = Path(os.environ.get("TFLITE2ONNX_RUNTIMES", ROOT / ".venv-runtimes"))
SERVE = Path(__file__).with_name("serve.py")


@dataclass(frozen=True)
class Runtime:
    """A runtime: its name, the packages of its environment, and how it is called.

    `loader` is its name in serve.py, "web" for serve.cjs in Node, "browser" for it in Chromium.
    `packages` are npm's with these two. `target` is the conversion option for the runtime. If this
    Python has the package `module`, the runtime needs no environment of its own. `processor` is the
    name of an emulated processor of ARM64. `environment` is the name of an environment that several
    runtimes share.
    """

    name: str
    loader: str
    packages: Sequence[str]
    target: Target
    module: str = ""
    processor: str = ""
    environment: str = ""

    @property
    def folder(self) -> Path:
        """The folder of the environment."""
        return FOLDER / (self.environment or self.name)

    @property
    def is_made(self) -> bool:
        """Whether the environment exists."""
        return bool(self.module and find_spec(self.module)) or (self.folder / "made").exists()

    @property
    def command(self) -> list[str]:
        """The command that runs a model, without the path of the model."""
        if self.loader == "web":
            return ["node", str(SERVE.with_suffix(".cjs")), str(self.folder)]
        if self.loader == "browser":
            script = SERVE.with_name("serve_browser.py")
            return [sys.executable, str(script), find_browser(), str(self.folder)]
        if self.processor:
            return [*arm64.make_command(self.folder, self.processor), str(SERVE), self.loader]
        made = (self.folder / "made").exists()
        python = str(self.folder / "bin" / "python") if made else sys.executable
        return [python, str(SERVE), self.loader]

    def make_folder(self) -> None:
        """Make the environment, which takes a network.

        Raises:
            subprocess.CalledProcessError: pip or npm failed.
            FileNotFoundError: npm is not installed.
        """
        if self.is_made:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.processor:
            arm64.make_folder(self.folder)
            (self.folder / "made").touch()
            return
        if self.loader in ("web", "browser"):
            (self.folder / "package.json").write_text("{}")
            command = ["npm", "install", "--no-audit", "--no-fund", *self.packages]
        else:
            venv.create(self.folder, with_pip=True)
            command = [str(self.folder / "bin" / "python"), "-m", "pip", "install", *self.packages]
        subprocess.run(command, cwd=self.folder, check=True)
        (self.folder / "made").touch()


def _onnxruntime(version: str, *packages: str, target: Target = "onnxruntime") -> Runtime:
    name = f"onnxruntime-{version.rpartition('.')[0]}"
    return Runtime(name, "onnxruntime", (f"onnxruntime=={version}", *packages), target)


def _provider(name: str, version: str, target: Target) -> Runtime:
    name = f"onnxruntime-{name}"
    return Runtime(name, name, (f"{name}=={version}",), target)


def _compiler(name: Target, *packages: str) -> Runtime:
    return Runtime(name, name, (*packages, "numpy", "onnx"), name)


OLDEST = _onnxruntime("1.20.0")
WEB = Runtime("onnxruntime-web", "web", ("onnxruntime-web@1.30.0",), "web")
BROWSER = Runtime(
    "chromium-webgpu", "browser", WEB.packages, "webgpu", environment="onnxruntime-web"
)
OPENVINO = Runtime("openvino", "openvino", ("openvino==2026.4.1",), "openvino", "openvino")
REFERENCE = Runtime("onnx.reference", "reference", ("onnx",), "portable", "onnx")
GENAI = Runtime(
    "onnxruntime-genai",
    "genai",
    ("onnxruntime-genai==0.18.0",),
    "genai",
    "onnxruntime_genai",
)
QNN = Runtime("qnn", "qnn", ("onnxruntime==1.32.0", "onnxruntime-qnn==2.7.0"), "qnn")
# Without PyTorch, see serve.py.
RKNN = Runtime(
    "rknn",
    "rknn",
    (
        *("--no-deps", "rknn-toolkit2==2.5.0", "fast-histogram", "flatbuffers", "ml-dtypes"),
        *(
            "numpy==1.26.4",
            "onnx==1.18.0",
            "onnxruntime==1.22.1",
            "opencv-python-headless==4.11.0.86",
        ),
        *("protobuf==4.25.4", "psutil", "ruamel.yaml", "scipy==1.15.3", "setuptools<81", "tqdm"),
        *("typing-extensions", "coloredlogs", "humanfriendly", "packaging", "sympy", "mpmath"),
    ),
    "rknn",
)
ARM64 = tuple(
    Runtime(f"arm64-{name}", "onnxruntime", (), "onnxruntime", processor=name, environment="arm64")
    for name in arm64.PROCESSORS
)
RUNTIMES = {
    runtime.name: runtime
    for runtime in (
        _onnxruntime("1.17.3", "numpy<2", target="portable"),
        OLDEST,
        _onnxruntime("1.19.2", "numpy<2", target="portable"),
        _onnxruntime("1.22.1"),
        _onnxruntime("1.23.2"),
        _onnxruntime("1.31.1"),
        _onnxruntime("1.32.0"),
        WEB,
        BROWSER,
        OPENVINO,
        replace(OPENVINO, name="openvino-default", loader="openvino-default"),
        replace(OPENVINO, name="openvino-floats", loader="openvino-floats"),
        REFERENCE,
        Runtime("opencv-4", "opencv", ("opencv-python-headless==4.14.0.94",), "opencv"),
        Runtime("opencv-5", "opencv", ("opencv-python-headless==5.0.0.93",), "opencv"),
        Runtime("tvm", "tvm", ("apache-tvm==0.27.0.post1", "onnx"), "tvm"),
        QNN,
        RKNN,
        *ARM64,
        _provider("openvino", "1.24.1", target="openvino"),
        _provider("webgpu", "1.27.0", target="webgpu"),
        _compiler("iree", "iree-base-compiler==3.13.0", "iree-base-runtime==3.13.0"),
        _compiler("tract", "tract==0.23.9"),
        _compiler("mnn", "MNN==3.6.1"),
        # The command pnnx in Python would need PyTorch; its program does not.
        _compiler(
            "ncnn",
            "--no-deps",
            "pnnx==20261020",
            "ncnn==1.0.20261020",
            "ml-dtypes",
            "protobuf",
            "typing-extensions",
        ),
    )
}
