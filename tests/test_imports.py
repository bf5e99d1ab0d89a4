"""The structure of the package: imports run in one direction."""

from __future__ import annotations

import ast
import re
import sys
from functools import cache
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path

from tflite2onnx.targets.table import TARGETS, find_options

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "tflite2onnx"

# From the lowest row to the highest; a folder includes all its modules. A module imports from lower
# rows, and from its own row without cycles.
ROWS = (
    {"errors", "extensions", "utils", "version"},
    {"graph", "graph_text", "made_options", "tensor"},
    {"axis_letters", "layout", "quantization", "quantize", "reader", "solver", "stateful"},
    {"builder"},
    {"op"},
    {"passes"},
    {"custom_options", "operators", "rewriting", "sizes"},
    {"contrib"},
    {
        "canonical",
        "convert",
        "emit",
        "float16",
        "interface",
        "language_steps",
        "options",
        "pictures",
        "planning",
        "replaced_files",
        "result",
        "signatures",
        "stages",
        "storage_table",
        "targets",
        "validity",
        "writer",
    },
    {"bundle", "inspection", "verification"},
    {"report"},
    {"cli"},
    {"__init__", "__main__"},
)
# The modules for extensions, which docs/adding-an-operator.md describes.
PUBLIC = {"custom_options", "extensions", "operators", "rewriting", "sizes"}
# The modules that may import libraries other than the standard library and numpy.
LIBRARIES = {
    "flatbuffers": {
        "reader.flexbuffer",
    },
    "onnx": {
        "builder.messages",
        "builder.nodes",
        "builder.older_opsets",
        "options",
        "pictures.network",
        "report.facts",
        "replaced_files",
        "report.graph_lanes",
        "result",
        "targets.checker",
        "validity",
        "verification.onnx_model",
        "verification.segments",
        "writer",
    },
}

# What a model means and how it is planned: folders and modules that name no target and no runtime.
NEUTRAL = ("builder", "float16.py", "layout.py", "op", "passes", "quantization", "quantize.py")
# The names of targets that are no plain words, and names of the same runtimes with other spellings.
RUNTIMES = {*TARGETS} - {"portable", "web"} | {r"onnx[\s#]*runtime", r"core\s?ml", "mlas", "ort"}


@cache
def parse_file(path: Path) -> ast.Module:
    """Return the syntax tree of a file."""
    return ast.parse(path.read_text())


@cache
def modules() -> dict[str, Path]:
    """Return the modules by their names in the package: "op.conv"; "op" is op/__init__.py."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = path
    return found


def imported_names(node: ast.AST) -> list[str]:
    """Return the full names of the modules that an import statement reads; none of other nodes."""
    match node:
        case ast.Import(names):
            return [alias.name for alias in names]
        case ast.ImportFrom(str(module), names):
            whole = [f"{module}.{alias.name}" for alias in names]
            return [n if n.removeprefix("tflite2onnx.") in modules() else module for n in whole]
        case _:
            return []


def package_imports(path: Path) -> set[str]:
    """Return the modules of the package that a file imports."""
    named = (n for node in ast.walk(parse_file(path)) for n in imported_names(node))
    return {n.removeprefix("tflite2onnx.") for n in named} & modules().keys()


def row(name: str) -> int:
    """Return the number of the row that lists a module."""
    (found,) = [i for i, names in enumerate(ROWS) if name.partition(".")[0] in names]
    return found


def test_imports_run_one_way() -> None:
    """A module imports only from its own row and from lower rows."""
    wrong = [
        f"{name} imports {other}"
        for name, path in modules().items()
        for other in package_imports(path)
        if row(other) > row(name)
    ]
    assert wrong == []


def test_core_does_not_import_contrib() -> None:
    """Only the package's __init__ names it: operators and passes of contrib are offered."""
    core = {name: path for name, path in modules().items() if name.partition(".")[0] != "contrib"}
    users = [
        name
        for name, path in core.items()
        if any(other.partition(".")[0] == "contrib" for other in package_imports(path))
    ]
    assert users == ["__init__"]


def test_contrib_imports_what_a_package_of_a_user_can() -> None:
    """It imports public modules and its own, so that it shows what an extension can do."""
    wrong = [
        f"{name} imports {other}"
        for name, path in modules().items()
        if name.partition(".")[0] == "contrib"
        for other in package_imports(path)
        if other not in PUBLIC and other.partition(".")[0] != "contrib"
    ]
    assert wrong == []


def test_every_public_name_is_described() -> None:
    """Functions and classes for extensions have docstrings, and the guide has their modules."""
    guide = (ROOT / "docs/adding-an-operator.md").read_text()
    for module in PUBLIC:
        assert f"`tflite2onnx.{module}`" in guide
        public = import_module(f"tflite2onnx.{module}")
        own = {
            name: value
            for name, value in vars(public).items()
            if str(getattr(value, "__module__", "")).startswith("tflite2onnx")
        }
        assert [name for name, value in own.items() if not value.__doc__] == []


def test_no_module_imports_itself_by_way_of_others() -> None:
    """Imports have no cycle."""
    graph = {name: package_imports(path) for name, path in modules().items()}
    assert list(TopologicalSorter(graph).static_order())


def part_of_target(name: str) -> str:
    """Return the target to whose folder a module belongs, "" for none."""
    first, _, rest = name.partition(".")
    folder = rest.partition(".")[0]
    return folder if first == "targets" and folder in TARGETS else ""


def test_targets_do_not_know_each_other() -> None:
    """No module imports a target, but for modules of its own folder.

    All others find the modules of a target by its name (`targets.table`).
    """
    wrong = [
        f"{name} imports {other}"
        for name, path in modules().items()
        for other in package_imports(path)
        if part_of_target(other) not in ("", part_of_target(name))
    ]
    assert wrong == []


def test_no_code_asks_for_a_target() -> None:
    """Only the folder of a target and the table have the name of a target as a string.

    "onnxruntime" is also the name of a library.
    """
    names = {*TARGETS} - {"onnxruntime"}
    wrong = [
        f"{name} has {node.value}"
        for name, path in modules().items()
        for node in ast.walk(parse_file(path))
        if name != "targets.table"
        and isinstance(node, ast.Constant)
        and node.value in names - {part_of_target(name)}
    ]
    assert wrong == []


def test_the_table_lists_the_folders_of_targets() -> None:
    """The table and the folders agree, and each folder has the options of its target."""
    folders = {path.parent.name for path in (PACKAGE / "targets").glob("*/__init__.py")}
    assert folders == {*TARGETS}
    assert all(map(find_options, TARGETS))


def test_every_name_in_the_rows_exists() -> None:
    """Each name in the rows is an existing module or folder."""
    assert set().union(*ROWS) == {name.partition(".")[0] for name in modules()}


def test_the_meaning_of_models_names_no_runtime() -> None:
    """Only `targets/` says how a runtime wants its models; what was measured stands in docs/."""
    name = re.compile(rf"\b({'|'.join(sorted(RUNTIMES))})\b", re.IGNORECASE)
    wrong = [
        f"{path.relative_to(ROOT)} names {found[0]}"
        for path in modules().values()
        if path.relative_to(PACKAGE).parts[0] in NEUTRAL
        for found in name.finditer(path.read_text())
    ]
    assert wrong == []


def test_only_targets_name_targets() -> None:
    """Comments and messages of other modules name no target, but for the library that verifies."""
    names = {*TARGETS} - {"onnxruntime", "portable", "web"} | {r"core\s?ml"}
    name = re.compile(rf"\b({'|'.join(sorted(names))})\b", re.IGNORECASE)
    wrong = [
        f"{module} names {found[0]}"
        for module, path in modules().items()
        if module != "targets.table" and not part_of_target(module)
        for found in name.finditer(path.read_text())
    ]
    assert wrong == []


def test_every_folder_is_a_package() -> None:
    """Each folder with modules has an `__init__.py`, which says what stands there."""
    for folder in sorted({path.parent for path in PACKAGE.rglob("*.py")}):
        assert (folder / "__init__.py").exists(), folder


def foreign(node: ast.AST) -> set[str]:
    """Return the libraries that a syntax tree imports."""
    names = {n.partition(".")[0] for inner in ast.walk(node) for n in imported_names(inner)}
    return names - {"tflite2onnx"}


def test_only_listed_modules_import_libraries() -> None:
    """Each library is imported only by the listed modules."""
    wrong = [
        f"{name} imports {library}"
        for name, path in modules().items()
        for library in foreign(parse_file(path)) - sys.stdlib_module_names - {"numpy"}
        if name not in LIBRARIES.get(library, ())
    ]
    assert wrong == []
