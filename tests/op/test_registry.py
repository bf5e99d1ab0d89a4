"""Operators that a program or an installed package registers."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest

import tflite2onnx
import tflite2onnx.operators
from tests.support import Build, run_onnx
from tflite2onnx import register, unregister
from tflite2onnx.errors import RegistrationError, UnsupportedOperators
from tflite2onnx.op.registry import list_builtin_codes
from tflite2onnx.operators import Builder, Category, Operator, OperatorError, Value, View

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]


class Doubled(Operator):
    """Multiplies its input by 2."""

    category = Category.TRANSPARENT
    tflite = "... -> ..."

    def emit(self, g: Builder, y: View, x: View) -> Value:  # noqa: ARG002 - the output's view
        return g.Add(x, x)


@contextmanager
def register_temporarily(*codes: str, **how: Any) -> Iterator[None]:
    register(*codes, **how)(Doubled)
    try:
        yield
    finally:
        unregister(*codes, **how)


def model(code: str, *, custom: bool) -> bytes:
    m = Build()
    x = m.input([2, 3], name="x")
    outputs = [m.tensor([2, 3], name="y")]
    m.output(*(m.custom(code, [x], outputs) if custom else m.op(code, [x], outputs)))
    return m.bytes()


def nodes(data: bytes, **options: Any) -> list[str]:
    return [node.op_type for node in tflite2onnx.convert(data, **options).model.graph.node]


# Registration by a program


def test_registered_custom_operator_is_converted() -> None:
    data = model("Twice", custom=True)
    with register_temporarily("Twice", "Thrice"):
        x = np.arange(6, dtype=np.float32).reshape(2, 3)
        (y,) = run_onnx(tflite2onnx.convert(data).model, {"x": x})
        np.testing.assert_array_equal(y, 2 * x)
        assert {"Twice", "Thrice"} <= set(tflite2onnx.supported_operators())
    with pytest.raises(UnsupportedOperators, match=r"Twice \(operator 0, y\): this custom"):
        tflite2onnx.convert(data)


def test_registered_class_replaces_a_builtin_operator() -> None:
    data = model("ABS", custom=False)
    with register_temporarily("ABS"):
        assert nodes(data) == ["Add"]
        assert "ABS" in tflite2onnx.supported_operators()
    assert nodes(data) == ["Abs"]


def test_custom_operator_may_have_a_builtin_name() -> None:
    with register_temporarily("ABS", custom=True):
        assert nodes(model("ABS", custom=True)) == ["Add"]
        assert nodes(model("ABS", custom=False)) == ["Abs"]


def test_registered_class_replaces_a_supported_custom_operator() -> None:
    (code, *_) = sorted({*tflite2onnx.supported_operators()} - list_builtin_codes())
    with register_temporarily(code):
        assert nodes(model(code, custom=True)) == ["Add"]


def test_refuses_an_operator_that_is_registered_already() -> None:
    with register_temporarily("Twice"):
        message = r"Twice is registered already, for tests\S*\.Doubled; call unregister\('Twice'\)"
        with pytest.raises(RegistrationError, match=message):
            register("Once", "Twice")(Doubled)
        with pytest.raises(UnsupportedOperators):
            tflite2onnx.convert(model("Once", custom=True))


def test_refuses_incomplete_and_inconsistent_classes() -> None:
    with pytest.raises(
        RegistrationError, match=r"must be a subclass of tflite2onnx.operators.Operator"
    ):
        register("Twice")(dict)  # type: ignore[type-var]  # no operator class
    with pytest.raises(RegistrationError, match="Incomplete must have the method emit"):
        register("Twice")(type("Incomplete", (Operator,), {}))
    untraited = type("Untraited", (Doubled,), {"dynamic_axes": "..."})
    reason = r"Untraited must be a subclass of tflite2onnx.operators.DynamicShape, because it has"
    with pytest.raises(RegistrationError, match=reason):
        register("Twice")(untraited)
    ranging = type("Ranging", (Doubled,), {"ranges": None})
    with pytest.raises(RegistrationError, match=r"Ranging must be a subclass of .*TakesRanges"):
        register("Twice")(ranging)
    with pytest.raises(RegistrationError, match="must have the names of the operators"):
        register()(Doubled)
    with pytest.raises(RegistrationError, match="must be a non-empty string, got ''"):
        register("")
    with pytest.raises(RegistrationError, match="the operator's name must be a non-empty string"):
        register(Doubled)  # type: ignore[arg-type]  # without a name
    with pytest.raises(RegistrationError, match="Twice is not registered"):
        unregister("Twice")


# Registration by an installed package

SOURCE = '''
from tflite2onnx.operators import Builder, Category, Operator, Value, View

class Tripled(Operator):
    """Three times its input."""

    category = Category.TRANSPARENT
    tflite = "... -> ..."

    def emit(self, g: Builder, y: View, x: View) -> Value:
        return g.Sum(x, x, x)
'''


def install(place: Path, package: str, *points: str, source: str = SOURCE) -> None:
    """Write a package and its entry points into a folder, as pip would."""
    (place / f"{package}.py").write_text(source)
    info = place / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = ["[tflite2onnx.operators]", *(f"{code} = {package}:Tripled" for code in points)]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")


def run_command(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line with the packages of a folder."""
    path = os.pathsep.join([str(place), str(ROOT)])
    return subprocess.run(
        [sys.executable, "-m", "tflite2onnx", *arguments],
        cwd=place,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )


def convert_in_process(place: Path, code: str, *, custom: bool) -> subprocess.CompletedProcess[str]:
    (place / "model.tflite").write_bytes(model(code, custom=custom))
    return run_command(place, "model.tflite")


def test_package_replaces_a_builtin_operator(tmp_path: Path) -> None:
    install(tmp_path, "mine", "ABS")
    assert convert_in_process(tmp_path, "ABS", custom=False).returncode == 0
    assert [node.op_type for node in onnx.load(tmp_path / "model.onnx").graph.node] == ["Sum"]


def test_package_is_imported_only_if_a_model_needs_it(tmp_path: Path) -> None:
    install(tmp_path, "mine", "Thrice", source="raise ValueError('not today')")
    assert convert_in_process(tmp_path, "ABS", custom=False).returncode == 0
    done = convert_in_process(tmp_path, "Thrice", custom=True)
    assert done.returncode == 1
    message = "its class mine:Tripled of mine cannot be loaded: not today"
    assert f"Thrice (operator 0, y): {message}" in done.stderr


def test_refuses_a_package_that_offers_no_class(tmp_path: Path) -> None:
    install(tmp_path, "mine", "Thrice", source="Tripled = 3")
    assert "3 must be a subclass" in convert_in_process(tmp_path, "Thrice", custom=True).stderr


def test_program_takes_precedence_over_a_package(tmp_path: Path) -> None:
    install(tmp_path, "mine", "Thrice")
    (tmp_path / "model.tflite").write_bytes(model("Thrice", custom=True))
    code = (
        "import tflite2onnx, mine\n"
        "from tflite2onnx.operators import register\n"
        "@register('Thrice')\n"
        "class Thrice(mine.Tripled):\n"
        "    def emit(self, g, y, x): return g.Neg(x)\n"
        "result = tflite2onnx.convert('model.tflite')\n"
        "print(*(node.op_type for node in result.model.graph.node))\n"
    )
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.stdout.strip() == "Neg"


def test_public_module_has_all_names_for_operators() -> None:
    """The public module has all names that an operator needs."""
    public = tflite2onnx.operators
    assert {"Builder", "Category", "Frame", "Operator", "View", "register"} <= vars(public).keys()
    assert public.OperatorError is OperatorError
