"""The record of each model: whether it is converted, and the budget of its cost."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from tests.golden.isolated import run_isolated
from tests.golden.kernels import count_real_kernels, integer, kernels, portable, runtime
from tflite2onnx import ConversionError, Result, convert

ZOO = "TFLITE2ONNX_ZOO"

EQUAL, DIFFER, UNKNOWN = "equal", "differ", "unknown"

# In the zoo only float networks have a recorded text: their layouts and fusions are readable.
_NETWORK = 3

ASSETS = Path(__file__).resolve().parents[2] / "assets" / "models"
DATA = Path(__file__).with_name("data")
BUDGETS = Path(__file__).with_name("budgets.json")


@dataclass(frozen=True)
class Case:
    """A model file of a collection, the assets or the zoo; `name` is its path in the collection."""

    collection: str
    name: str
    path: Path

    @property
    def golden(self) -> Path:
        """The path of the recorded text of its ONNX model."""
        return DATA / self.collection / f"{self.name.removesuffix('.tflite')}.txt"


def assets() -> list[Case]:
    """Return the models of the project."""
    return _cases("assets", ASSETS)


def zoo() -> list[Case]:
    """Return the models in the folder TFLITE2ONNX_ZOO; none if the variable is not set."""
    folder = os.environ.get(ZOO)
    return _cases("zoo", Path(folder)) if folder else []


def _cases(collection: str, folder: Path) -> list[Case]:
    files = sorted(folder.rglob("*.tflite"))
    return [Case(collection, file.relative_to(folder).as_posix(), file) for file in files]


@dataclass(frozen=True)
class Record:
    """A file and the result of its conversion: the name of an error, or the cost of the ONNX model.

    `sha256` distinguishes the file from another file of the same name, for which the record does
    not hold. `kernels` counts the kernels that ONNX Runtime runs for a quantized model, by type.
    `numbers` is "equal" or "differ" by comparison with LiteRT's outputs, or "unknown" if LiteRT
    cannot run the model.
    """

    sha256: str
    error: str = ""
    nodes: int = 0
    transposes: int = 0
    bytes_moved: int = 0
    kernels: Mapping[str, int] = field(default_factory=dict)
    numbers: str = EQUAL

    def changes(self, now: Record, *, fused: bool = True) -> tuple[list[str], list[str]]:
        """Return in words the costs that got worse, and those that got better.

        Kernels are compared if both records are `fused` by the same runtime: fewer integer kernels
        and more float kernels in their place are worse.
        """
        if self.error or now.error:
            texts = [record.error or "converted" for record in (self, now)]
            change = [] if self.error == now.error else [f"{texts[0]} before, {texts[1]} now"]
            return (change, []) if now.error else ([], change)
        costs = [
            ("nodes", self.nodes, now.nodes),
            ("Transposes", self.transposes, now.transposes),
            ("bytes moved", self.bytes_moved, now.bytes_moved),
        ]
        if fused:
            costs.append(("integer kernels", -integer(self.kernels), -integer(now.kernels)))
            costs.append(
                ("real kernels", count_real_kernels(self.kernels), count_real_kernels(now.kernels))
            )
        worse = [f"{abs(new)} {what}, not {abs(old)}" for what, old, new in costs if new > old]
        better = [f"{abs(new)} {what}, not {abs(old)}" for what, old, new in costs if new < old]
        if fused and portable(self.kernels) != portable(now.kernels) and not worse + better:
            better.append(f"{now.kernels}, not {self.kernels}")
        return worse, better

    def as_json(self) -> dict[str, Any]:
        """Return the fields that are not empty."""
        if self.error:
            return {"sha256": self.sha256, "error": self.error}
        usual = {"error": "", "numbers": EQUAL, "kernels": {}}
        return {key: v for key, v in asdict(self).items() if usual.get(key) != v}


def measure(data: bytes) -> tuple[Record, Result | None]:
    """Convert a model; return its record without a numerical comparison, and the result if any."""
    digest = sha256(data).hexdigest()
    try:
        result = convert(data)
    except ConversionError as error:
        return Record(digest, type(error).__name__), None
    layout = result.transposes, result.bytes_moved
    return Record(digest, "", result.nodes, *layout, _kernels(result)), result


def _kernels(result: Result) -> dict[str, int]:
    if not _is_quantized(result):
        return {}
    try:
        return run_isolated(kernels, result.skeleton.serialize())
    except AssertionError:  # the comparison with LiteRT reports it
        return {}


def _is_quantized(result: Result) -> bool:
    nodes = result.skeleton.proto.graph.node
    return any("quantizelinear" in node.op_type.lower() for node in nodes)


def is_pictured(case: Case, result: Result) -> bool:
    """Return whether the text of a model's graph is recorded."""
    network = result.nodes >= _NETWORK and not _is_quantized(result)
    return case.collection == "assets" or network


@dataclass(frozen=True)
class Records:
    """All records, by collection and name; `runtime` is the runtime that fused the kernels."""

    runtime: str
    collections: Mapping[str, Mapping[str, Record]]

    @staticmethod
    def load() -> Records:
        """Read budgets.json."""
        stored = json.loads(BUDGETS.read_text()) if BUDGETS.exists() else {}
        made_by = stored.pop("runtime", runtime())
        return Records(
            made_by,
            {
                collection: {name: Record(**fields) for name, fields in models.items()}
                for collection, models in stored.items()
            },
        )

    def record_of(self, case: Case, digest: str) -> Record | None:
        """Return the record of a file with these contents."""
        record = self.collections.get(case.collection, {}).get(case.name)
        return record if record and record.sha256 == digest else None

    @property
    def fused_here(self) -> bool:
        """Whether integer kernels can be compared with those of this machine."""
        return self.runtime == runtime()

    def with_records(self, records: Mapping[Case, Record]) -> Records:
        """Return these records updated with others, made with the runtime of this machine."""
        collections = {name: dict(models) for name, models in self.collections.items()}
        for case, record in records.items():
            collections.setdefault(case.collection, {})[case.name] = record
        return Records(runtime(), collections)

    def write(self) -> None:
        """Write budgets.json: a line for each model."""
        parts = [f'"runtime": {json.dumps(self.runtime)}']
        for collection, models in sorted(self.collections.items()):
            lines = [
                f"{json.dumps(name)}: {json.dumps(record.as_json())}"
                for name, record in sorted(models.items())
            ]
            parts.append(f'"{collection}": {{\n' + ",\n".join(lines) + "\n}")
        BUDGETS.write_text("{\n" + ",\n".join(parts) + "\n}\n")
