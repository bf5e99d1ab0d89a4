"""Run a command whose numpy, ONNX Runtime and LiteRT see a processor with AVX2, without AVX-512.

A result on one processor is a result on that processor. This script shows the other kind on a
processor with AVX-512 and VNNI, at its own speed, where an emulator (qemu-user) measures no times::

    python scripts/hide_avx512.py python scripts/latency.py model.tflite --runs 9
    python scripts/hide_avx512.py tflite2onnx verify model.tflite model.onnx
    python scripts/hide_avx512.py pytest -p no:faulthandler -n 2 tests/golden tests/quantized

The libraries choose their kernels by the instruction cpuid. The script copies the packages into a
folder of .venv-runtimes, and replaces each cpuid in the copies by ud2, an instruction that raises
SIGILL. A preloaded handler runs cpuid and returns its result without AVX-512, VNNI, AMX and GFNI.
The times are those of this processor with the kernels for AVX2: another one has other caches and
clocks.

pytest needs `-p no:faulthandler`, because Python's faulthandler handles SIGILL itself. The script
needs Linux on x86-64, a C compiler, and objdump and readelf of binutils.
"""

import usage

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

PACKAGES = ("numpy", "onnxruntime", "ai_edge_litert")
PROGRAMS = ("cc", "objdump", "readelf")
CPUID, UD2 = b"\x0f\xa2", b"\x0f\x0b"
# Bits of leaf 7, subleaf 0, by register, in Intel's manual, volume 2, cpuid. Its other subleaves
# have newer forms of the same sets (AVX-VNNI).
HIDDEN = {
    "b": (16, 17, 21, 26, 27, 28, 30, 31),  # AVX512F, DQ, IFMA, PF, ER, CD, BW, VL
    "c": (1, 6, 8, 11, 12, 14),  # AVX512-VBMI, VBMI2, GFNI, AVX512-VNNI, BITALG, VPOPCNTDQ
    "d": (2, 3, 8, 22, 23, 24, 25),  # AVX512-4VNNIW, 4FMAPS, VP2INTERSECT, AMX, AVX512-FP16
}
HANDLER = """
#define _GNU_SOURCE
#include <cpuid.h>
#include <signal.h>
#include <ucontext.h>

static void return_cpuid(int number, siginfo_t *info, void *context) {
  greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;
  unsigned char *code = (unsigned char *)r[REG_RIP];
  if (code[0] != 0x0f || code[1] != 0x0b) { signal(SIGILL, SIG_DFL); return; }
  unsigned leaf = r[REG_RAX], subleaf = r[REG_RCX], a, b, c, d;
  __cpuid_count(leaf, subleaf, a, b, c, d);
  if (leaf == 7 && subleaf == 0) { MASKS }
  else if (leaf == 7) a = b = c = d = 0;
  r[REG_RAX] = a; r[REG_RBX] = b; r[REG_RCX] = c; r[REG_RDX] = d; r[REG_RIP] += 2;
}

__attribute__((constructor)) static void handle_sigill(void) {
  struct sigaction action = {.sa_sigaction = return_cpuid, .sa_flags = SA_SIGINFO | SA_NODEFER};
  sigaction(SIGILL, &action, 0);
}
"""


def find_cpuids(library: Path) -> Iterator[int]:
    """Yield where the file of a library has the instruction cpuid.

    Other instructions hold the same two bytes, so this needs a disassembler.
    """
    sections = _run_program("readelf", "-SW", library)
    executable = re.findall(r"PROGBITS\s+(\w+) (\w+) (\w+) \w+\s+AX", sections)
    ranges = [tuple(int(number, 16) for number in section) for section in executable]
    for place in re.findall(
        r"^\s*(\w+):\s+cpuid",
        _run_program("objdump", "-d", "--no-show-raw-insn", library),
        re.MULTILINE,
    ):
        address = int(place, 16)
        for start, offset, size in ranges:
            if start <= address < start + size:
                yield address - start + offset


def replace_cpuids(library: Path) -> None:
    """Replace each cpuid in a library by ud2."""
    data = bytearray(library.read_bytes())
    if CPUID in data:
        for i in find_cpuids(library):
            data[i : i + 2] = UD2
        library.write_bytes(data)


def make_folder(folder: Path) -> None:
    """Make the copies of the packages, and the library that handles the signal."""
    installed = Path(sysconfig.get_path("platlib"))
    temporary = folder.with_name(f"{folder.name}.{os.getpid()}")
    for name in (*PACKAGES, "numpy.libs"):
        if (installed / name).exists():
            shutil.copytree(installed / name, temporary / name)
    for library in temporary.rglob("*.so*"):
        replace_cpuids(library)
    compile_handler(temporary)
    try:
        temporary.rename(folder)
    except OSError:
        if not folder.exists():
            raise
        shutil.rmtree(temporary)  # another process has made the folder


def compile_handler(folder: Path) -> Path:
    """Return the library that handles the signal, which the linker loads before others."""
    masks = (f"{r} &= ~({' | '.join(f'1u << {i}' for i in bits)});" for r, bits in HIDDEN.items())
    source = folder / "handler.c"
    source.write_text(HANDLER.replace("MASKS", " ".join(masks)))
    handler = folder / "handler.so"
    _run_program("cc", "-O1", "-shared", "-fPIC", source, "-o", handler)
    return handler


def _run_program(*command: str | Path) -> str:
    done = subprocess.run(  # noqa: S603 - the programs of main
        command, capture_output=True, text=True, check=True
    )
    return done.stdout


def main() -> None:
    """Run the command of the arguments."""
    missing = [name for name in PROGRAMS if not shutil.which(name)]
    if missing:
        sys.exit(f"hide_avx512.py needs {' and '.join(missing)}: apt-get install gcc binutils")
    if not sys.argv[1:]:
        sys.exit("hide_avx512.py must be given a command; see hide_avx512.py --help")
    # The copies are those of the installed versions.
    folder = usage.ROOT / ".venv-runtimes" / "-".join(("avx2", *map(version, PACKAGES)))
    if not folder.exists():
        make_folder(folder)
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "LD_PRELOAD": str(folder / "handler.so"), "PYTHONPATH": path}
    os.execvpe(sys.argv[1], sys.argv[1:], environment)  # noqa: S606 - no shell is needed


if __name__ == "__main__":
    main()
