"""scripts/hide_avx512.py: a library whose cpuid is replaced sees no AVX-512, and all other sets."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

_SOURCE = """
#include <cpuid.h>
unsigned find_register(int i) {
  unsigned r[4];
  __cpuid_count(7, 0, r[0], r[1], r[2], r[3]);
  return r[i];
}
"""
_PROGRAM = """
import ctypes, sys
find_register = ctypes.CDLL(sys.argv[1]).find_register
find_register.restype = ctypes.c_uint
print(*map(find_register, (1, 2, 3)))
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="cpuid is an instruction of x86-64")
def test_library_sees_no_hidden_set_and_all_others(script: Any, tmp_path: Path) -> None:
    for name in script.PROGRAMS:
        if not shutil.which(name):
            pytest.skip(f"{name} is not installed (apt-get install gcc binutils)")
    source, library = tmp_path / "library.c", tmp_path / "library.so"
    source.write_text(_SOURCE)
    compiler = shutil.which("cc") or "cc"
    subprocess.run([compiler, "-shared", "-fPIC", source, "-o", library], check=True)
    before = _read_registers(library)
    script.replace_cpuids(library)
    after = _read_registers(library, LD_PRELOAD=str(script.compile_handler(tmp_path)))
    hidden = [sum(1 << i for i in script.HIDDEN[r]) for r in "bcd"]
    assert after == [x & ~bits for x, bits in zip(before, hidden, strict=True)]


def _read_registers(library: Path, **environment: str) -> list[int]:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, library],
        env={**os.environ, **environment}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [int(word) for word in done.stdout.split()]
