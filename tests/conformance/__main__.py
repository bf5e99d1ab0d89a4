"""Run the whole matrix and write docs/operators.md: python -m tests.conformance [OPERATOR ...].

With names of operators, only these operators are run, and only their lines change. The run ends
with a summary. If a result differs from the table, no file is written, and the exit status is 1.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from scripts.make_module_table import check_module_table
from tests.conformance import operator_table, record
from tests.conformance.matrix import run_all
from tests.conformance.rows import ROWS


def main(codes: Sequence[str]) -> int:
    """Run the matrix; return the exit status."""
    check_module_table()
    began = time.monotonic()
    outcomes = list(run_all([ROWS[code] for code in codes or ROWS]))
    faults = record.faults(outcomes)
    if not faults:
        known = record.read_record() if codes and record.FILE.exists() else {}
        record.write(dict(sorted({**known, **record.summarize(outcomes)}.items())))
        operator_table.TARGET.write_text(operator_table.document())
    judged = [o for o in outcomes if not o.tried]
    cases = sum(len(o.verdicts) for o in judged)
    tried = sum(len(o.verdicts) for o in outcomes if o.tried)
    sys.stdout.writelines(f"{fault}\n" for fault in faults)
    if faults:
        sys.stdout.write("the record and docs/operators.md stay as they are\n")
    sys.stdout.write(
        f"{len({o.row.code for o in outcomes})} operators: {cases} cases, {tried} other types"
        f" tried, {len(faults)} faults, {time.monotonic() - began:.0f} s\n"
    )
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
