"""The models that are damaged, in sets: operators, features, patterns, networks, published files.

A seed is a valid file, with inputs if it needs special inputs, and the allowed difference of the
runtimes.
"""

from __future__ import annotations

import io
import os
import random
import zipfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tests.conformance.rows import ROWS
from tests.conformance.table import Bound, Case
from tests.fuzz.models import MODELS
from tests.fuzz.mutate import mutate_bytes
from tests.fuzz.patterns import PATTERNS
from tests.golden.records import ASSETS
from tests.support.decoder import METADATA, TOKENIZER, build_decoder
from tests.support.litertlm import Part, build_external, compress, model_part, pack_litertlm
from tests.support.runtimes import Array
from tests.support.split_decoder import build_table, list_split_parts
from tests.support.task import METADATA as PARAMETERS, PIECES, pack_task

# Larger files take seconds each, and have no features that smaller files lack.
_LARGEST_FILE = 1 << 22
# The frequency of a file is inverse to its size in bytes plus this number.
_BASE = 1 << 15
# File names in bundles: paths out of the folder, empty names, names that systems do not allow.
_ROLES = ("prefill_decode", "embedder", "aux", "", "../..")
_NAMES = (
    "a.tflite",
    "b/c.tflite",
    "MODEL",
    "a.onnx",
    "manifest.json",
    "../a.tflite",
    "/a.tflite",
    "a/../b.tflite",
    "..",
    ".",
    "/",
    "a.tflite/b.tflite",
    "\0a.tflite",
    "a\nb.tflite",
    "C:\\a.tflite",
    "n" * 300,
    "\N{SNOWMAN}.tflite",
    "deep/" * 40 + "a.tflite",
)


# Differences of one step add up in several operators. A mobilenet of 27 operators, some of whose
# outputs have finer steps than their inputs, differs by 5 steps, with other weights by 11, and with
# another scale by 22, although each operator alone differs by at most one step.
_OF_NETWORKS = Bound(0.05, 24)


class Seed(NamedTuple):
    """A model, inputs of consecutive runs, and the allowed difference of the outputs."""

    name: str
    data: bytes
    runs: Sequence[Sequence[Array]] = ()
    bound: Bound = Bound(1e-4, 1)


@cache
def _cases(code: str) -> list[Case]:
    row = ROWS[code]
    return [*row.cases(), *row.trials()]


def _choose_case(generator: random.Random) -> Seed:
    """Return a model of one operator; most of these operators have a LiteRT kernel."""
    with_kernel = generator.random() < 0.8
    while True:
        row = ROWS[generator.choice([*ROWS])]
        if row.referred and with_kernel:
            continue
        case = generator.choice(_cases(row.code))
        try:
            data, runs, _ = case.build()
        except Exception:  # noqa: BLE001, S112 - the builder has no such type
            continue
        bound = case.row.bound(case.kind)
        part, steps = max(bound.part, 1e-4), max(bound.steps, 1)
        return Seed(case.name, data, runs, Bound(part, steps))


@cache
def _build_model(name: str) -> bytes:
    return (MODELS | PATTERNS)[name]()


def _choose_model(names: Sequence[str], generator: random.Random) -> Seed:
    name = generator.choice(names)
    return Seed(name, _build_model(name), (), _OF_NETWORKS)


@cache
def _files(folder: str) -> tuple[list[Path], list[float]]:
    paths = sorted(Path(folder).rglob("*.tflite"))
    sizes = {path: path.stat().st_size for path in paths}
    paths = [path for path in paths if sizes[path] <= _LARGEST_FILE]
    return paths, [1 / (sizes[path] + _BASE) for path in paths]


def _choose_file(folder: str, generator: random.Random) -> Seed:
    paths, weights = _files(folder)
    (path,) = generator.choices(paths, weights)
    return Seed(path.name, path.read_bytes(), (), _OF_NETWORKS)


def _choose_published(generator: random.Random) -> Seed:
    folder = os.environ.get("TFLITE2ONNX_ZOO")
    return _choose_file(folder, generator) if folder else _choose_case(generator)


def _choose_bundle(generator: random.Random) -> Seed:
    """Return an archive of models; or a model with an archive appended, as metadata are stored."""
    if generator.random() < 0.3:
        return Seed("task", pack_task(build_decoder()))
    made = io.BytesIO()
    method = generator.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    inner = _choose_case(generator)
    with zipfile.ZipFile(made, "w", method) as archive:
        for name in generator.sample(_NAMES, generator.randrange(1, 4)):
            entry = zipfile.ZipInfo("name")
            entry.filename, entry.compress_type = name, method
            archive.writestr(entry, generator.choice((inner.data, b"text", bytes(1 << 12))))
    data = made.getvalue()
    return Seed("bundle", data if generator.random() < 0.8 else inner.data + data)


def _choose_container(generator: random.Random) -> Seed:
    """Return a language model, as a `.litertlm` file or a `.task`.

    A `.litertlm` file also has other models and external weights, and some decoders are several
    models. Half of the tokenizers of Hugging
    Face are damaged here, because they are compressed in the file.
    """
    mask = generator.choice(("", "bool", "float32"))
    decoder = build_decoder(
        mask=mask, tokens_first=not mask, depth=generator.choice((4, 16)),
        extra=generator.choice(("", "mixed", "shared", "state")),
    )  # fmt: skip
    if generator.random() < 0.25:
        return Seed("task", pack_task(decoder, metadata=generator.choice((METADATA, PARAMETERS))))
    decoders = [model_part(decoder)]
    if generator.random() < 0.3:
        decoders = list_split_parts(build_table())
    parts = [
        model_part(_choose_case(generator).data, generator.choice(_ROLES))
        for _ in range(generator.randrange(3))
    ]
    if generator.random() < 0.5:
        model, weights = build_external("weights", np.ones(3, np.float32))
        role = generator.choice(_ROLES)
        parts += [model_part(model, role), model_part(weights, role, "TFLiteWeights")]
    tokenizer = Part("SP_Tokenizer", PIECES)
    if generator.random() < 0.5:
        damage = generator.getrandbits(32) * generator.randrange(2)
        tokenizer = Part("HF_Tokenizer_Zlib", compress(mutate_bytes(TOKENIZER, damage)))
    shared = [Part("LlmMetadataProto", METADATA), tokenizer, *parts]
    return Seed("container", pack_litertlm([*decoders, *shared]))


SETS: Mapping[str, tuple[float, Callable[[random.Random], Seed]]] = {
    "operators": (0.75, _choose_case),
    "features": (0.08, partial(_choose_model, [*MODELS])),
    "patterns": (0.08, partial(_choose_model, [*PATTERNS])),
    "bundles": (0.03, _choose_bundle),
    "containers": (0.03, _choose_container),
    "published": (0.02, _choose_published),
    "networks": (0.01, lambda generator: _choose_file(str(ASSETS), generator)),
}


@lru_cache(maxsize=8)
def choose_seed(name_of_choice: str, only: str = "") -> tuple[str, Seed]:
    """Return the name of a set, and a seed of the set; the same name gives the same seed.

    `only` may be the set of the seed.
    """
    generator = random.Random(name_of_choice)
    weights = [weight for weight, _ in SETS.values()]
    name = only or generator.choices([*SETS], weights)[0]
    return name, SETS[name][1](generator)
