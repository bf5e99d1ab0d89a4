"""What a script says for --help, and where packages that it imports are missing.

`import usage` stands before the imports that may fail. Options are argparse's, if it can be asked.
"""

import ast
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # scripts import `tests`

_TESTS = {"ai_edge_litert", "onnxruntime", "pytest"}  # what `tests` imports
_PACKAGES = {"PIL": "pillow"}  # packages of other names than their modules


def list_imports(script: Path) -> Iterator[str]:
    """Yield the packages that a script, and scripts that it imports, import when they start."""
    for node in ast.parse(script.read_text()).body:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        for name in (name.partition(".")[0] for name in names):
            beside = script.with_name(f"{name}.py")
            yield from list_imports(beside) if beside.exists() else [name]


def explain(script: Path) -> None:
    """Print the docstring if --help is asked; end if a package is missing."""
    names = {*list_imports(script)}
    names |= _TESTS if "tests" in names else set()
    missing = sorted(_PACKAGES.get(n, n.replace("_", "-")) for n in names if find_spec(n) is None)
    is_asked = not {"-h", "--help"}.isdisjoint(sys.argv[1:])
    if is_asked and (missing or "argparse" not in names):
        print(ast.get_docstring(ast.parse(script.read_text())))
        sys.exit(0)
    if missing:
        sys.exit(f"{script.name} needs other packages: pip install {' '.join(missing)}")


if Path(sys.argv[0]).resolve().parent == Path(__file__).parent:
    explain(Path(sys.argv[0]))
