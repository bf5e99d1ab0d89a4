"""Python with ONNX Runtime for ARM64, which QEMU emulates on x86-64.

Debian's packages of Python 3.11 for ARM64 are unpacked, not installed: the machine must be a Debian
12 with qemu-user.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

# What /proc/cpuinfo has of the processors, from Cortex-A72 without dot product to i8mm.
_OLDEST = "fp asimd evtstrm aes pmull sha1 sha2 crc32"
_DOT = f"{_OLDEST} atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp"
PROCESSORS = {
    "cortex-a72": ("0xd08", f"{_OLDEST} cpuid"),
    "neoverse-n1": ("0xd0c", _DOT),
    "max": ("0xd49", f"{_DOT} i8mm bf16"),
}
_DEBIAN = (
    "libpython3.11-minimal libpython3.11-stdlib python3.11-minimal python3.11 libc6 libstdc++6"
    " libgcc-s1 zlib1g libexpat1 libssl3 libffi8 libbz2-1.0 liblzma5 libuuid1 libcrypt1"
)
_WHEELS = ("onnxruntime==1.32.0", "numpy==2.4.6")
_CPUINFO = """processor\t: 0
BogoMIPS\t: 50.00
Features\t: {features}
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x1
CPU part\t: {part}
CPU revision\t: 1
"""


def make_folder(folder: Path) -> None:
    """Download Python and its packages for ARM64, and unpack them in a folder.

    Raises:
        subprocess.CalledProcessError: apt-get, dpkg or pip failed.
        FileNotFoundError: the machine has no apt-get.
    """
    root, site, files = (folder / name for name in ("root", "site", "files"))
    for each in (root, site, files):
        each.mkdir(parents=True, exist_ok=True)

    def run_command(*words: object) -> None:
        subprocess.run([*map(str, words)], cwd=files, check=True)

    run_command("dpkg", "--add-architecture", "arm64")
    try:
        run_command("apt-get", "update", "-q")
        run_command("apt-get", "download", "-q", *(f"{name}:arm64" for name in _DEBIAN.split()))
    finally:
        run_command("dpkg", "--remove-architecture", "arm64")
    for package in files.glob("*.deb"):
        run_command("dpkg", "-x", package, root)
    systems = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014")
    platforms = [word for name in systems for word in ("--platform", f"{name}_aarch64")]
    python = ["--python-version", "3.11", "--implementation", "cp", "--only-binary=:all:"]
    pip = [sys.executable, "-m", "pip", "install", "--target", site, *platforms, *python]
    run_command(*pip, *_WHEELS)
    for processor, (part, features) in PROCESSORS.items():
        # ONNX Runtime reads this file. Without one of ARM its import ends with a segmentation
        # fault; one with the dot product makes it run instructions that Cortex-A72 lacks.
        view = folder / processor
        (view / "proc").mkdir(parents=True, exist_ok=True)
        (view / "proc" / "cpuinfo").write_text(_CPUINFO.format(part=part, features=features))
        for name in ("usr", "lib"):
            (view / name).symlink_to(Path("..", root.name, name))  # the folder may move


def make_command(folder: Path, processor: str) -> list[str]:
    """Return the command that runs Python on an emulated processor."""
    packages = [f"PYTHONHOME={folder / 'root' / 'usr'}", f"PYTHONPATH={folder / 'site'}"]
    threads = ["PYTHONDONTWRITEBYTECODE=1", "OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1"]
    python = str(folder / "root" / "usr" / "bin" / "python3.11")
    # With QEMU 7.2's SME a network of float convolutions differs by 11 dB, without it by 72 dB.
    cpu = f"{processor},sme=off" if processor == "max" else processor
    qemu = ["qemu-aarch64", "-cpu", cpu, "-L", str(folder / processor)]
    return ["env", *packages, *threads, *qemu, python]
