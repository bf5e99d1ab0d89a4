"""The tables agree with the schema and with LiteRT."""

from __future__ import annotations

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from tests.support import Build, run_tflite
from tests.support.facts import OPERATORS, OPTIONS, VERSIONS, options_table


def test_options_have_the_names_of_the_schema() -> None:
    """Names are the schema's in snake case, enumerations may be named, lists are vectors."""
    assert options_table("CONV_2D", {"padding": "VALID", "stride_h": 3}).strideH == 3
    cast = options_table("CAST", {"in_data_type": "int32", "out_data_type": "BFLOAT16"})
    assert (cast.inDataType, cast.outDataType) == (2, 18)
    assert options_table("SQUEEZE", {"squeeze_dims": (1, 2)}).squeezeDims == [1, 2]
    composite = options_table("STABLEHLO_COMPOSITE", {"composite_attributes": b"ab"})
    assert composite.compositeAttributes.tolist() == [97, 98]
    assert options_table("RELU", {}) is None
    with pytest.raises(TypeError, match="RELU has no option 'axis', only: none"):
        options_table("RELU", {"axis": 1})
    with pytest.raises(TypeError, match="only: values_count, axis"):
        options_table("PACK", {"count": 1})


def test_every_options_table_has_an_operator() -> None:
    """A new operator with an unusual name needs a line in facts.py."""
    unions = (schema.BuiltinOptions, schema.BuiltinOptions2)
    tables = {name for union in unions for name in vars(union) if name.endswith("Options")}
    assert tables == {name for name, _, _ in OPTIONS.values()}


@pytest.mark.parametrize("extra", [0, 1])
def test_versions_are_the_newest_that_litert_registers(extra: int) -> None:
    """LiteRT looks up all codes of a file, used or not."""
    for name, version in VERSIONS.items():
        m = Build()
        m.output(m.input([1]))
        code = OPERATORS[name]
        m.model().operatorCodes = [
            schema.OperatorCodeT(min(code, 127), None, version + extra, code)
        ]
        if not extra:
            run_tflite(m.bytes(), [np.zeros(1, np.float32)])
            continue
        with pytest.raises(ValueError, match=f"'{name}' version '{version + 1}'"):
            run_tflite(m.bytes(), [np.zeros(1, np.float32)])
