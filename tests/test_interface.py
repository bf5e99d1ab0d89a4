"""interface.py: layouts of inputs and outputs, and of named tensors."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.support import Build, check
from tests.support.control import count_rounds, loop, number
from tests.support.small import build_flattening, chain, convolve, network
from tests.support.streams import build_sum
from tflite2onnx import convert
from tflite2onnx.errors import LayoutError, OptionError
from tflite2onnx.interface import Endpoint, make_interface
from tflite2onnx.passes.state.lift_variables import lift_variables
from tflite2onnx.reader.model import read_model

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.support import Converted, Subgraph, Tensor

NCHW = (0, 3, 1, 2)
NHWC = (0, 1, 2, 3)


def endpoint_orders(result: Converted) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """Return the axis orders of inputs and outputs."""
    return [e.order for e in result.inputs], [e.order for e in result.outputs]


def shape_of(result: Converted, name: str) -> list[int]:
    """Return the shape of a tensor inside the ONNX model."""
    (info,) = [i for i in result.model.graph.value_info if i.name == name]
    return [d.dim_value for d in info.type.tensor_type.shape.dim]


def transposes(result: Converted) -> int:
    """Return how many nodes move axes."""
    return sum(n.op_type == "Transpose" for n in result.model.graph.node)


# io_layout


@pytest.mark.parametrize(
    ("order", "shown"),
    [(NCHW, "channels first"), ((0, 2, 1, 3), "transposed (0, 2, 1, 3)"), (NHWC, "")],
)
def test_the_order_of_axes_without_letters_is_shown(order: tuple[int, ...], shown: str) -> None:
    (end, *_) = convert(network()).inputs
    assert replace(end, order=order).shown_layout[0] == "NHWC"
    assert replace(end, order=order, letters="").shown_layout == ("", shown)


@pytest.mark.parametrize(
    ("mode", "order", "moves"),
    [("auto", NCHW, 0), ("onnx", NCHW, 0), ("tflite", NHWC, 2)],
)
def test_inputs_and_outputs_are_channels_first_unless_tflite(
    mode: str, order: tuple[int, ...], moves: int
) -> None:
    """Inputs and outputs are channels first, unless io_layout="tflite"."""
    result = check(network(), io_layout=mode)
    assert endpoint_orders(result) == ([order], [order])
    assert transposes(result) == moves


def test_auto_keeps_inputs_whose_shape_hides_the_layout() -> None:
    """With "auto" the input [2, 5, 5, 5] stays, as its shape would not show the layout."""
    data = network(shape=(2, 5, 5, 5))
    result = check(data)
    assert endpoint_orders(result) == ([NHWC], [NCHW])
    assert endpoint_orders(check(data, io_layout="onnx")) == ([NCHW], [NCHW])


@pytest.mark.parametrize(
    ("signature", "order"),
    [((-1, 5, 7, 3), NCHW), ((2, -1, 7, 3), NHWC), ((2, 5, -1, 3), NHWC), ((-1, -1, -1, 3), NHWC)],
)
def test_auto_keeps_inputs_with_dynamic_height_or_width(
    signature: tuple[int, ...], order: tuple[int, ...]
) -> None:
    data = network(signature=signature)
    assert endpoint_orders(check(data)) == ([order], [NCHW])
    assert endpoint_orders(check(data, io_layout="onnx")) == ([NCHW], [NCHW])


@pytest.mark.parametrize("mode", ["auto", "tflite", "onnx"])
def test_elementwise_networks_keep_their_layout(mode: str) -> None:
    """Inputs and outputs of an elementwise network stay, because no axis is the channels."""
    result = check(chain("ABS", "SQRT", shape=(2, 3, 5, 7)), io_layout=mode)
    assert endpoint_orders(result) == ([NHWC], [NHWC])
    assert transposes(result) == 0


def test_auto_keeps_a_flattened_output_and_onnx_does_not() -> None:
    """With "auto" a flattened output stays; with "onnx" it is channels first at any cost."""
    data = build_flattening()
    assert endpoint_orders(check(data)) == ([NCHW], [NHWC, (0, 1)])
    assert endpoint_orders(check(data, io_layout="onnx")) == ([NCHW], [NCHW, (0, 1)])


def test_interface_is_one_site_with_shared_state_frames() -> None:
    """The interface is one site; the input and output of a state share a frame."""
    model = read_model(build_sum())
    graph = lift_variables(model.graphs[0], model)
    for mode, label in (("auto", None), ("onnx", None), ("tflite", ("0", "1", "2"))):
        site = make_interface(graph, {}, mode)
        assert (site.writes, site.reads) == (graph.inputs, graph.outputs)
        assert [set(frame.slots) for frame in site.frames] == [{~0}, {0}, {~1, 1}]
        assert site.frames[2].label == label
    wanted = {graph.outputs[1]: (2, 0, 1)}
    assert make_interface(graph, wanted, "auto").frames[2].label == ("2", "0", "1")


# Endpoints


@pytest.mark.parametrize(
    ("letters", "order", "layout"),
    [
        ("", (), ("", "")),
        ("N", (0,), ("N", "N")),
        ("", (1, 0), ("01", "10")),
        ("NWC", (0, 2, 1), ("NWC", "NCW")),
        ("NHWC", NCHW, ("NHWC", "NCHW")),
        ("", NCHW, ("0123", "0312")),
    ],
)
def test_letters_give_the_layout_of_an_endpoint(
    letters: str, order: tuple[int, ...], layout: tuple[str, str]
) -> None:
    """Unnamed axes are numbers; an endpoint can be restored from the metadata."""
    sizes = (1,) * len(order)
    end = Endpoint("x", "float32", sizes, order, {}, letters)
    assert end.layout == layout
    assert Endpoint.from_dict(end.to_dict()) == end


def test_endpoint_has_name_type_sizes_and_letters() -> None:
    """An endpoint has TFLite's name and type, both shapes, and letters of related tensors."""
    m = Build()
    x = m.input([2, 3], name="in", dtype="int32")
    m.output(*m.op("ADD", [x, x], [m.tensor([2, 3], dtype="int32", name="out")]))
    result = check(m.bytes(), layouts={"in": ("NC", "CN")})
    assert result.inputs == (Endpoint("in", "int32", (2, 3), (1, 0), {}, "NC"),)
    assert result.outputs == (Endpoint("out", "int32", (2, 3), (0, 1), {}, "NC"),)


# Layouts of single tensors


@pytest.mark.parametrize("mode", ["auto", "tflite", "onnx"])
@pytest.mark.parametrize(
    ("pair", "order"),
    [(("NHWC", "NCHW"), NCHW), (["NHWC", "NHWC"], NHWC), (("abcd", "dbca"), (3, 1, 2, 0))],
)
def test_an_input_is_laid_out_as_asked(
    mode: str, pair: Sequence[str], order: tuple[int, ...]
) -> None:
    """The mapping takes precedence over the mode."""
    result = check(network(), layouts={"x": pair}, io_layout=mode)
    assert endpoint_orders(result)[0] == [order]


def test_an_output_is_laid_out_as_asked() -> None:
    """The layout of one output is given, and the planner chooses the layout of the other output."""
    result = check(build_flattening(), layouts={"flat": ("ab", "ba")})
    assert endpoint_orders(result)[1] == [NCHW, (1, 0)]


def test_outputs_that_are_constant_are_laid_out_as_asked() -> None:
    """The layout of constant outputs is applied, also after folding."""
    m = Build()
    zeros = m.constant(np.zeros((2, 3), np.float32), name="zeros")
    shape = m.constant(np.array([3, 2], np.int32))
    m.output(m.input([1], name="x"), zeros)
    m.output(*m.op("RESHAPE", [zeros, shape], [m.tensor([3, 2], name="more")]))
    result = check(m.bytes(), layouts={"zeros": ("NC", "CN"), "more": ("NC", "CN")})
    assert endpoint_orders(result)[1] == [(0,), (1, 0), (1, 0)]


def test_free_output_follows_the_order_of_the_input() -> None:
    """If the user permutes an input, a free output follows."""
    result = check(chain("ABS", shape=(2, 3, 5, 7)), layouts={"x": ("NHWC", "NCHW")})
    assert endpoint_orders(result) == ([NCHW], [NCHW])
    assert transposes(result) == 0


@pytest.mark.parametrize("order", [NHWC, NCHW, (2, 0, 3, 1)])
def test_an_inner_tensor_is_laid_out_as_asked(order: tuple[int, ...]) -> None:
    """An inner tensor keeps its name in the ONNX model, and has the given layout."""
    pair = ("0123", "".join(map(str, order)))
    result = check(network(), layouts={"positive": pair})
    assert shape_of(result, "positive") == [(2, 5, 7, 12)[i] for i in order]


def test_inner_tensors_have_their_own_layouts() -> None:
    """Each inner tensor has its own layout; Transposes serve their readers."""
    m = Build()
    hidden = convolve(m, m.input((2, 5, 7, 3), name="x"), 11, "hidden")
    (a,) = m.op("ABS", [hidden], [m.tensor(hidden.shape, name="a")])
    (b,) = m.op("ADD", [a, hidden], [m.tensor(hidden.shape, name="b")])
    m.output(convolve(m, b, 13, "y"), *m.op("ABS", [a], [hidden.shape]))
    layouts = {"a": ("NHWC", "CNWH"), "hidden": ("NHWC", "NHWC"), "x": ("NHWC", "NHWC")}
    result = check(m.bytes(), layouts=layouts)
    assert shape_of(result, "a") == [11, 2, 7, 5]
    assert shape_of(result, "hidden") == [2, 5, 7, 11]
    assert endpoint_orders(result)[0] == [NHWC]


# Errors


@pytest.mark.parametrize(
    ("layouts", "message"),
    [
        ({"hiden": ("NHWC", "NCHW")}, "`layouts`: .* no tensor hiden; did you mean hidden?"),
        ({"zzzzz": ("NHWC", "NCHW")}, "`layouts`: the model has no tensor zzzzz"),
        ({5: ("NHWC", "NCHW")}, "`layouts`: the model has no tensor 5"),
        (
            {"x": ("NHC", "NCH")},
            "layout of x: NHC and NCH must have a letter for each of the tensor's 4 axes",
        ),
        (
            {"hidden": ("NC", "CN")},
            "layout of hidden: NC and CN must have a letter for each of the tensor's 4",
        ),
        ({"x": ("NHWC", "NCHX")}, "layout of x: NHWC and NCHX must have the same letters"),
        ({"x": ("NHWC", "NCH")}, "NHWC and NCH must have the same letters, each once"),
        ({"x": ("NHHC", "NCHH")}, "NHHC and NCHH must have the same letters, each once"),
        ({"x": "NCHW"}, "layout of x: it must be a pair such as"),
        ({"x": "NC"}, "layout of x: it must be a pair such as"),
        ({"x": ["NHWC"]}, "layout of x: it must be a pair such as"),
        ({"x": ["NHWC", "NCHW", "NCHW"]}, "layout of x: it must be a pair such as"),
        ({"x": [1, 2]}, "layout of x: it must be a pair such as"),
        ({"x": {"NHWC": 1, "NCHW": 2}}, "layout of x: it must be a pair such as"),
        ({"x": None}, "layout of x: it must be a pair such as"),
        ({"y/filters": ("OHWI", "OIHW")}, "layout of y/filters: the tensor is constant, or"),
        ([("x", "NHWC", "NCHW")], "`layouts` must be a mapping such as"),
        ((), "`layouts` must be a mapping such as"),
    ],
)
def test_invalid_layouts_are_refused(layouts: Any, message: str) -> None:
    """The message names the tensor and the reason."""
    with pytest.raises(LayoutError, match=message):
        convert(network(), layouts=layouts)


def test_error_names_the_first_tensor_that_is_not_made() -> None:
    """The message is deterministic: it names the first tensor of the mapping."""
    names = ["y/filters", "hidden/biases", "hidden/filters", "y/biases"]
    letters = {"filters": ("OHWI", "OHWI"), "biases": ("O", "O")}
    layouts: Mapping[str, tuple[str, str]] = {n: letters[n.split("/")[1]] for n in names}
    with pytest.raises(LayoutError, match="layout of y/filters"):
        convert(network(), layouts=layouts)


def test_unknown_io_layouts_are_refused() -> None:
    """The message lists the valid values."""
    with pytest.raises(OptionError, match="`io_layout` must be auto, tflite or onnx, got 'NCHW'"):
        convert(network(), io_layout="NCHW")  # type: ignore[arg-type]


@pytest.mark.parametrize("inner", [True, False])
def test_layouts_of_tensors_in_a_loop_are_refused(*, inner: bool) -> None:
    """The layout of a tensor inside a loop cannot be given, and the message says so."""
    m = Build()
    x = m.input([2, 3, 5])

    def twice(body: Subgraph, xs: Sequence[Tensor]) -> list[Tensor]:
        return body.op("ABS", xs, [body.tensor([2, 3, 5], name="absolute")])

    (_, y) = loop(m, [number(m, 0), x], count_rounds(twice))
    m.output(*m.op("NEG", [y], [m.tensor([2, 3, 5], name="negative")]))
    if not inner:
        check(m.bytes(), layouts={"negative": ("NWC", "CWN")})
        return
    with pytest.raises(LayoutError, match="absolute: the tensor must be outside of sub-graphs"):
        convert(m.bytes(), layouts={"absolute": ("NWC", "NCW")})
