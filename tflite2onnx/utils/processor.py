"""The processor's instruction sets that decide which integer kernels a runtime uses.

Without VNNI, AMX or ARM's dot product, a product of uint8 by int8 may saturate in 16 bits.
"""

import platform
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

_CPUINFO = Path("/proc/cpuinfo")  # exists on Linux only


class _Set(NamedTuple):
    """An instruction set: its name in numpy, "" if numpy does not detect it, and Linux's names."""

    name: str
    numpy: str
    linux: tuple[str, ...]


_SETS = {
    "x86": (
        _Set("AVX2", "AVX2", ("avx2",)),
        _Set("AVX-512", "AVX512BW", ("avx512bw",)),
        _Set("VNNI", "AVX512VNNI", ("avx512_vnni", "avx_vnni")),
        _Set("AMX", "", ("amx_int8",)),
    ),
    "ARM": (_Set("dot product", "ASIMDDP", ("asimddp",)), _Set("i8mm", "", ("i8mm",))),
}
_MACHINES = {"x86_64": "x86", "amd64": "x86", "aarch64": "ARM", "arm64": "ARM"}


def list_instructions() -> dict[str, bool | None]:
    """Return whether the processor has each instruction set, by name; None if this is unknown.

    numpy queries the processor itself. Linux reports more instruction sets, but under an emulator
    /proc/cpuinfo describes the host. If the two sources contradict each other, numpy's facts are
    used.
    """
    sets = _SETS.get(_MACHINES.get(platform.machine().lower(), ""), ())
    features, facts = _read_numpy_features(), _read_linux_facts()
    flags = frozenset(facts.get("flags", facts.get("Features", "")).split())
    asked = {entry.name: features.get(entry.numpy) for entry in sets}
    if any(asked[entry.name] is False and entry.linux[0] in flags for entry in sets):
        return asked
    if flags:
        return {
            entry.name: bool(asked[entry.name] or not flags.isdisjoint(entry.linux))
            for entry in sets
        }
    # numpy detects only one of two forms of an instruction set, so its False means unknown.
    return {
        entry.name: asked[entry.name] or (asked[entry.name] if len(entry.linux) == 1 else None)
        for entry in sets
    }


def describe_sets(sets: Mapping[str, bool | None]) -> str:
    """Return a text that lists the instruction sets with yes, no or unknown."""
    words = {True: "yes", False: "no", None: "unknown"}
    return ", ".join(f"{name} {words[value]}" for name, value in sets.items()) or "unknown"


def describe_processor() -> str:
    """Return the name and the model number that the system reports, and the instruction sets."""
    facts = _read_linux_facts()
    name, family, model = (facts.get(key, "") for key in ("model name", "cpu family", "model"))
    number = f" (family {family}, model {model})" if family and model else ""
    return f"{name or platform.machine()}{number}: {describe_sets(list_instructions())}"


def _read_numpy_features() -> Mapping[str, bool]:
    """Return the features that numpy detects at import, from a private attribute of numpy."""
    for core in ("numpy._core", "numpy.core"):  # the names in numpy 2 and numpy 1
        try:
            module = import_module(f"{core}._multiarray_umath")
        except ImportError:
            continue
        return dict(getattr(module, "__cpu_features__", {}))
    return {}


def _read_linux_facts() -> Mapping[str, str]:
    """Return the lines of /proc/cpuinfo for the first processor, by their names."""
    try:
        text = _CPUINFO.read_text()
    except OSError:
        return {}
    lines = (line.partition(":") for line in text.partition("\n\n")[0].splitlines())
    return {key.strip(): value.strip() for key, _, value in lines}
