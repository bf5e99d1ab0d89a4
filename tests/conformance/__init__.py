"""Every operator in every type, rank, option and layout: LiteRT against ONNX Runtime.

`rows` is the table, one row per operator; `table` generates its cases, `judge` runs one case,
`matrix` runs all cases. `python -m tests.conformance` runs the whole matrix and writes
docs/operators.md; tests/conformance/test_conformance.py runs a sample of it.
"""
