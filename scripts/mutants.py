"""Change one number at a time in a copy of the package, and count the changes that tests find.

    python scripts/mutants.py MODULE ... [--count N] [--seed SEED] -- TEST ...

A change adds 1 to an integer, or turns a comparison around, at a place that the seed draws from the
modules. All is run in a temporary copy of the checkout. One run of the tests says which of them
execute each line. A change is then tried with at most 60 tests that execute its statement (for
what only an import executes: any line of the module), those of the module first, and ends at the
first failure. Each change that no test finds is printed with its place; the exit status is 1 if
there is one. `--checkout` compares the tests of another checkout, under the same limits.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from coverage import CoverageData

ROOT = Path(__file__).resolve().parents[1]
MOST = 60  # tests of a change
RECORD = ("--cov", "--cov-context=test", "--cov-report=", "--cov-fail-under=0")
OPPOSITES: dict[type[ast.cmpop], str] = {
    ast.Lt: ">=",
    ast.LtE: ">",
    ast.Gt: "<=",
    ast.GtE: "<",
    ast.Eq: "!=",
    ast.NotEq: "==",
}


class Change(NamedTuple):
    """A new text for a part of a line: from `begin` to `end` in bytes."""

    path: Path
    statement: int  # the first line of the statement
    line: int
    begin: int
    end: int
    text: str

    def apply(self) -> str:
        """Change the file; return its old text."""
        old = self.path.read_bytes()
        lines = old.splitlines(keepends=True)
        line = lines[self.line - 1]
        lines[self.line - 1] = line[: self.begin] + self.text.encode() + line[self.end :]
        self.path.write_bytes(b"".join(lines))
        return old.decode()


def list_changes(path: Path) -> Iterator[Change]:
    """Yield all changes of a module."""
    tree = ast.parse(path.read_bytes())
    statements = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]  # outer first
    first = {node: outer.lineno for outer in statements for node in ast.walk(outer)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and type(node.value) is int and node.end_col_offset:
            text, end = str(node.value + 1), node.end_col_offset
            yield Change(path, first[node], node.lineno, node.col_offset, end, text)
        elif isinstance(node, ast.Compare) and len(node.ops) == 1:
            yield from turn_comparison(path, first[node], node)


def turn_comparison(path: Path, statement: int, node: ast.Compare) -> Iterator[Change]:
    """Yield the opposite of a comparison, if both operands are on one line."""
    left, right = node.left, node.comparators[0]
    opposite, begin = OPPOSITES.get(type(node.ops[0])), left.end_col_offset
    if opposite is not None and begin is not None and left.end_lineno == right.lineno:
        between = path.read_bytes().splitlines()[right.lineno - 1][begin : right.col_offset]
        if not set(between) & set(b"()"):  # parentheses around an operand would be cut off
            text = f" {opposite} "
            yield Change(path, statement, right.lineno, begin, right.col_offset, text)


def find_tests(change: Change, data: CoverageData) -> list[str]:
    """Return tests that execute the statement of a change, those of its module first."""
    contexts = data.contexts_by_lineno(str(change.path))
    tests = {n: {each.partition("|")[0] for each in contexts[n]} - {""} for n in contexts}
    lines = [n for n in range(change.statement, change.line + 1) if tests.get(n)]
    found = set[str]().union(*(tests[n] for n in lines or tests))
    folder = f"/{change.path.parent.name}/"
    near = (f"{folder}test_{change.path.name}", folder)
    return sorted(found, key=lambda test: ([part not in test for part in near], test))[:MOST]


def find_failure(copy: Path, tests: Sequence[str]) -> str:
    """Return the first line of a failure of the tests, or "" if they pass."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(  # noqa: S603 - the commands that are run are our own
            command,
            cwd=copy,
            env={**os.environ, "PYTHONPATH": str(copy)},
            capture_output=True,
            text=True,
            check=False,
            timeout=3600,
        )
    except subprocess.TimeoutExpired:
        return "the tests did not end in an hour"
    if not done.returncode:
        return ""
    lines = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return lines[0] if lines else done.stdout[-200:] + done.stderr[-200:]


def main() -> int | str:
    """Try the changes; return the exit status, or what went wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="+", help="modules or folders of the package")
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--seed", default="0")
    parser.add_argument("--checkout", type=Path, default=ROOT, help="by default this one")
    words = [*sys.argv[1:], "--"]
    options = parser.parse_args(words[: words.index("--")])
    tests = words[words.index("--") + 1 : -1]
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "checkout"
        shutil.copytree(options.checkout, copy, ignore=shutil.ignore_patterns(".*", "__pycache__"))
        if failure := find_failure(copy, [*RECORD, *tests]):
            return f"the tests must pass before a change, got {failure}"
        data = CoverageData(str(copy / ".coverage"))
        data.read()
        paths = [copy / name for name in options.modules]
        files = sorted({f for p in paths for f in (p.rglob("*.py") if p.is_dir() else [p])})
        changes = [change for path in files for change in list_changes(path)]
        generator = random.Random(options.seed)  # noqa: S311 - the same changes come again
        drawn = generator.sample(changes, min(options.count, len(changes)))
        for change in drawn:
            old = change.apply()
            covering = find_tests(change, data)
            failure = covering and find_failure(copy, covering)
            change.path.write_text(old)
            missed += not failure
            place = f"{change.path.relative_to(copy)}:{change.line}: {change.text.strip()}"
            print(f"{place}: {failure or 'NOT FOUND'}", flush=True)
    print(f"{len(drawn) - missed} of {len(drawn)} changes found")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
