"""tflite2onnx/report: the page needs no other files, and is readable in a browser."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings, strategies as st
from onnx import helper

from tests.support import Build
from tests.support.browser import evaluate_script
from tests.support.small import chain, network
from tests.verification.test_inner_tensors import build_deep, damage_model, wrong_pad
from tests.verification.test_latency import TIME
from tflite2onnx import convert, verify
from tflite2onnx.cli import main
from tflite2onnx.errors import OutputError
from tflite2onnx.report import collect_facts, netron, svg, write_page, write_report
from tflite2onnx.report.facts import PageFacts
from tflite2onnx.report.graph_lanes import Strip, build_strip
from tflite2onnx.verification import Report

MODELS = Path(__file__).parents[2] / "assets" / "models"
_EMPTY = {"meta", "br", "path", "circle", "rect"}


class Tree(HTMLParser):
    """Checks that all elements are closed in order, and collects their attributes and text.

    Only attributes that refer to something are collected.
    """

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.refers: list[str] = []
        self.text: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self.ids += [named["id"] or ""] if "id" in named else []
        self.refers += [named[k] or "" for k in ("src", "href", "srcset", "action") if k in named]
        if tag not in _EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in _EMPTY:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.text.append(data)


def gather_facts(data: bytes, *, per_operator: bool = True) -> PageFacts:
    """Return the facts of a conversion."""
    result = convert(data)
    return collect_facts(data, result, verify(data, result, per_operator=per_operator))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with pages of a float model, a quantized model and a wrong conversion."""
    path = tmp_path_factory.mktemp("pages")
    for name in ("unet_float32", "mobilenet_int8"):
        model = MODELS / f"{name}.tflite"
        result = convert(model)
        report = verify(model, result, per_operator=True, latency=True)
        write_report(path / f"{name}.html", model, result, report)
    wrong = damage_model(convert(build_deep()), wrong_pad)
    write_report(path / "wrong.html", build_deep(), wrong, verify(build_deep(), wrong))
    return path


# Contents of the page


def test_graph_has_no_nodes_that_make_weights() -> None:
    """The choice between int8 and uint8 weights is computed once, when the model is loaded."""
    model = MODELS / "mobilenet_int8.tflite"
    result = convert(model)
    assert "If" in {node.op_type for node in result.model.graph.node}
    strip = collect_facts(model, result, Report((), 1, 0)).strip
    assert "If" not in {row.kind for row in strip.rows}
    assert strip.lanes < 5


@pytest.mark.parametrize("name", ["unet_float32", "mobilenet_int8", "wrong"])
def test_page_loads_no_other_files(folder: Path, name: str) -> None:
    """Elements are closed, ids are unique, and the page loads nothing."""
    html = (folder / f"{name}.html").read_text()
    tree = Tree(html)
    assert tree.refers == []
    assert len(tree.ids) == len(set(tree.ids))
    assert not re.search(r"https?:|@import|url\(|XMLHttp", html)
    assert html.count("fetch(") == html.count("fetch(link.href")  # of Netron, on a click


def test_page_of_quantized_model_has_all_sections(folder: Path) -> None:
    """A page of a quantized model has facts, differences, steps, the graph and speed."""
    text = " ".join(Tree((folder / "mobilenet_int8.html").read_text()).text)
    for words in (
        "mobilenet_int8.tflite in ONNX",
        "PASSED.",
        "is equal to LiteRT's default kernels (XNNPACK), bit for bit",
        "int8, weights by channel",
        "Opset",
        "1 output and 25 tensors, on 2 samples",
        "serving_default_input:0",
        "1\u00d796\u00d796\u00d73 NHWC",
        "Along the depth of the network",
        "computed in the network",
        "operator on LiteRT's inputs",
        "Differences in steps",
        "Operators and tensors",
        "channels first",
        "GlobalAveragePool",
        "com.microsoft.QLinearConv",
        "LiteRT",
        "ONNX Runtime",
        " ms",
        "seed 0",
    ):
        assert words in text, words
    assert re.search(rf"Time, one thread {TIME}", text)


def test_page_gives_the_wider_limit_of_a_close_output(tmp_path: Path) -> None:
    """A page says "CLOSE." and the limit if only a wider limit accepts an output."""
    model, page = MODELS / "mobilenet_int16x8.tflite", tmp_path / "page.html"
    result = convert(model)
    write_report(page, model, result, verify(model, result))
    text = " ".join(Tree(page.read_text()).text)
    assert "CLOSE." in text
    assert "is accepted by a wider limit: the signal-to-noise ratio is at least" in text


def test_page_of_float_model_shows_fractions_not_steps(folder: Path) -> None:
    """A page of a float model shows differences as fractions of the range, not as steps."""
    text = " ".join(Tree((folder / "unet_float32.html").read_text()).text)
    assert "Differences in steps" not in text
    assert "up to 1e-" in text
    assert "below the dashed line" not in text


def test_page_names_the_first_wrong_operator(folder: Path) -> None:
    """The page names the first wrong operator."""
    html = (folder / "wrong.html").read_text()
    text = " ".join(Tree(html).text)
    assert "FAILED." in text
    assert "is the output of CONV_2D (operator 2, last)." in text
    assert "exceeds its limits" in text
    points = json.loads(re.findall(r'id="points">(.*?)</script>', html)[0])
    assert [p["name"] for p in points] == ["first", "pooled", "last", "soft"]
    assert [p["x"] for p in points] == [0, 1 / 3, 2 / 3, 1]
    assert points[2]["lines"][0] == "CONV_2D, operator 2"
    assert points[2]["lines"][-1].startswith("its difference must be at most ")


def test_only_faults_are_red(folder: Path) -> None:
    """A tensor after the fault is not red if its operator is right; nor is one without a proof."""
    html = (folder / "wrong.html").read_text()
    bad, after = (
        [len(re.findall("M", d)) for d in re.findall(f'class="dot {kind}" d="(.*?)"', html)]
        for kind in ("bad", "after")
    )
    assert bad == [1, 1]  # alone, and in the network
    assert after == [1]
    assert 'class="wrong">wrong<' in html
    assert 'class="after">differs<' in html
    found = gather_facts(chain("ABS"))
    outputs = tuple(replace(output, level=1.0) for output in found.report.outputs)
    report = replace(found.report, outputs=outputs, operators=(), tensors=())
    html = write_page(replace(found, report=report))
    assert 'class="verdict unshown">UNPROVEN.' in html
    assert 'class="unshown">nothing shown<' in html
    assert report.faults == frozenset()


def test_page_and_conversion_count_alike() -> None:
    """The nodes and the Transposes of the page are those that a conversion counts."""
    model = MODELS / "mobilenet_int8.tflite"
    result = convert(model)
    found = collect_facts(model, result, verify(model, result))
    assert found.nodes == result.nodes
    assert found.kinds["Transpose"][0] == found.transposes == result.transposes
    kinds = [row.kind for row in found.strip.rows]
    assert kinds.count("Transpose") == result.transposes


def test_hostile_names_are_escaped() -> None:
    """Names are escaped in HTML."""
    m = Build()
    bad = "</script><img src=x onerror=alert(1)>&\"'\x1b[0m"
    x = m.input((2, 3, 5), name=bad)
    m.output(*m.op("ABS", [x], [m.tensor((2, 3, 5), name=f"{bad}2")]))
    html = write_page(gather_facts(m.bytes()))
    tree = Tree(html)
    assert tree.refers == []
    assert "<img" not in html
    assert "\x1b" not in html
    assert any("onerror=alert(1)" in part for part in tree.text)


def test_accumulated_rounding_is_not_shown_as_an_error() -> None:
    """Accumulated rounding errors are not shown as an error."""
    found = gather_facts(build_deep())
    first = found.report.tensors[0]
    far = replace(first, difference=replace(first.difference, largest=9.0, decibels=5.0))
    html = write_page(replace(found, report=replace(found.report, tensors=(far,))))
    assert "Rounding errors accumulate in inner tensors, but no operator is wrong" in html
    outputs = (replace(found.report.outputs[0], largest=9.0),)
    html = write_page(replace(found, report=replace(found.report, outputs=outputs)))
    assert "differ from LiteRT&#x27;s by more than rounding explains" in html


def test_page_of_foreign_model_has_only_outputs_and_graph() -> None:
    """For a model of another converter the page has only the outputs and the graph."""
    data = network()
    result = convert(data)
    found = collect_facts(data, result, verify(data, result, tensors=False))
    text = " ".join(Tree(write_page(found)).text)
    assert "Only the outputs are compared" in text
    assert "one thread" not in text  # no time is measured
    assert "Conv" in text


@pytest.mark.parametrize("value", ["reason", "infinite"])
def test_infinite_differences_are_described_in_words(value: str) -> None:
    """Differences of types, and infinite differences, are described in words."""
    found = gather_facts(build_deep())
    first = found.report.tensors[0]
    changed = (
        replace(first.difference, largest=np.inf, reason="int8[2] in LiteRT, int8[3] elsewhere")
        if value == "reason"
        else replace(first.difference, largest=np.inf, decibels=-np.inf)
    )
    tensors = (replace(first, difference=changed), *found.report.tensors[1:])
    report = replace(found.report, tensors=tensors, operators=tensors)
    text = " ".join(Tree(write_page(replace(found, report=report))).text)
    assert ("int8[2] in LiteRT" in text) == (value == "reason")


def test_convert_and_verify_commands_write_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`convert` and `verify` write the page; a page that cannot be written is an error."""
    model = tmp_path / "model.tflite"
    model.write_bytes(build_deep())
    one, two = tmp_path / "one.html", tmp_path / "two.html"
    assert main([str(model), "--report", str(one)]) == 0
    assert "4 right, 0 differ, 0 wrong" in capsys.readouterr().out
    converted = str(tmp_path / "model.onnx")
    assert main(["verify", str(model), converted, "--report", str(two), "--per-operator"]) == 0
    for path in (one, two):
        assert "model.tflite in ONNX" in path.read_text()
    assert "operator on LiteRT&#x27;s inputs" in two.read_text()
    assert main(["verify", str(model), "--report", str(tmp_path)]) == 1
    assert "cannot write" in capsys.readouterr().err
    result = convert(build_deep())
    report = verify(build_deep(), result)
    with pytest.raises(OutputError, match="cannot write"):
        write_report(tmp_path / "no" / "x.html", build_deep(), result, report)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--report", "./model.tflite"], "./model.tflite: it is the TFLite model"),
        (["--report", "model.onnx"], "model.onnx: it is the ONNX model"),
        (["none/out.onnx", "--report", "page.html"], "none/out.onnx: No such file"),
        (["--report", "none/page.html"], "none/page.html: No such file"),
    ],
    ids=str,
)
def test_the_page_and_the_model_are_both_written_or_neither(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    model = Path("model.tflite")
    model.write_bytes(chain("ABS"))
    assert main(["model.tflite", *words]) == 1
    assert f"cannot write {message}" in capsys.readouterr().err
    assert [*Path().iterdir()] == [model]
    assert model.read_bytes() == chain("ABS")


# The graph


def picture(proto: onnx.ModelProto) -> Strip:
    """Return the strip of a TFLite model."""
    return build_strip(proto, ())


def model_of(nodes: list[tuple[list[str], list[str]]], outputs: list[str]) -> onnx.ModelProto:
    """Return a model of nodes with these inputs and outputs; it reads "x"."""
    made = [helper.make_node("Sum", reads, makes) for reads, makes in nodes]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        made, "g", [value("x", 1, [2])], [value(name, 1, [2]) for name in outputs]
    )
    return helper.make_model(graph)


def test_chain_is_drawn_in_one_lane() -> None:
    """A chain is in one lane, from the input to the output."""
    result = convert(chain("ABS", "SIN", "EXP"))
    found = build_strip(result.model, result.skeleton.tensors)
    assert [row.kind for row in found.rows] == ["input", "Abs", "Sin", "Exp", "output"]
    assert found.lanes == 1
    assert [line.ends for line in found.lines] == [((i + 1, 0),) for i in range(4)]


def test_branches_are_drawn_in_lanes_beside_each_other() -> None:
    """A value keeps its lane until its last reader."""
    found = picture(
        model_of([(["x"], ["a"]), (["x"], ["b"]), (["a", "x"], ["c"]), (["c", "b"], ["y"])], ["y"])
    )
    assert found.lanes == 3
    assert [row.lane for row in found.rows] == [0, 1, 2, 1, 1, 1]


def test_transposes_have_rows_and_values_have_layouts() -> None:
    """A Transpose has its own row; values inside an operator have the operator's layout."""
    result = convert(MODELS / "transformer_float32.tflite")
    found = build_strip(result.model, result.skeleton.tensors)
    kinds = [row.kind for row in found.rows]
    assert kinds.count("Transpose") == result.transposes > 0
    result = convert(network(), io_layout="tflite")
    found = build_strip(result.model, result.skeleton.tensors)
    regions = {row.name: (row.region, row.layout) for row in found.rows if row.kind != "Transpose"}
    assert regions["x"] == ("", "") or regions["x"][0] == "tflite"
    assert regions["hidden"] == ("first", "NCHW")


def test_a_value_of_unknown_shape_is_not_called_a_scalar() -> None:
    found = picture(model_of([(["x"], ["y"]), (["y"], ["z"])], ["z"]))
    assert [row.shape for row in found.rows] == [(2,), None, (2,), (2,)]
    assert "scalar" not in svg.draw_graph(found)


def test_each_transpose_has_its_own_mark() -> None:
    """A Transpose has its own mark."""
    result = convert(MODELS / "transformer_float32.tflite")
    drawn = svg.draw_graph(build_strip(result.model, result.skeleton.tensors))
    assert drawn.count('<rect class="move"') == drawn.count(" move") == result.transposes


def test_pairs_of_quantization_are_left_out() -> None:
    """Quantization nodes, also of constant weights, are omitted."""
    for data in (build_deep(scale=0.05, zero_point=3), build_deep()):
        result = convert(data)
        found = build_strip(result.model, result.skeleton.tensors)
        kinds = [row.kind for row in found.rows]
        assert kinds == ["input", "Conv", "MaxPool", "Conv", "Transpose", "Softmax", "output"]


@settings(max_examples=100)
@given(st.data())
def test_lanes_of_values_never_overlap(data: st.DataObject) -> None:
    """A lane ends at the last reader of its value, so that lanes never overlap."""
    names, nodes = ["x"], []
    for i in range(data.draw(st.integers(1, 12))):
        reads = data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=3))
        makes = [f"v{i}_{j}" for j in range(data.draw(st.integers(1, 2)))]
        nodes.append((reads, makes))
        names += makes
    found = picture(model_of(nodes, [names[-1]]))
    taken: set[tuple[int, int]] = set()
    for line in found.lines:
        last = max(row for row, _ in line.ends)
        span = {(row, line.lane) for row in range(line.row, last)}
        assert not span & taken
        taken |= span
        assert all(found.rows[row].lane == lane for row, lane in line.ends)
    assert all(0 <= row.lane < found.lanes for row in found.rows)


# In a browser

WIDTHS = [(390, False), (390, True), (1400, False), (1400, True)]
LAYOUT = """
  const box = (e) => e.getBoundingClientRect().toJSON();
  const high = page.scrollingElement.scrollHeight;
  page.querySelectorAll("details").forEach((e) => { e.open = true; });
  const root = page.scrollingElement, style = view.getComputedStyle(page.body);
  const flow = [...page.querySelectorAll("header > *, section > *:not(script), footer")];
  return {
    wide: root.scrollWidth, high, inner: view.innerWidth,
    paper: style.backgroundColor, ink: style.color,
    flow: flow.map((e) => ({...box(e), tag: e.tagName + "." + e.className})),
    labels: [...page.querySelectorAll(".plot .grid span")].filter((e) => e.textContent).map(box),
    rows: [...page.querySelectorAll(".strip li")].map(box),
    marks: [...page.querySelectorAll(".strip circle, .strip rect")].map(box),
    sideways: [...page.querySelectorAll("div.scroll")]
      .filter((e) => e.scrollWidth > e.clientWidth).length,
    cells: [...page.querySelectorAll("td, th, dd, dt, .keys li, .strip span")]
      .filter((e) => e.textContent && view.getComputedStyle(e).display != "inline")
      .filter((e) => !e.clientWidth).length,
    sizes: [...page.querySelectorAll("p, td, li, dd, span")]
      .map((e) => parseFloat(view.getComputedStyle(e).fontSize)),
  };
"""


def luminance(color: str) -> float:
    """Return the relative luminance of a colour, as defined by WCAG 2."""
    channels = [int(n) / 255 for n in re.findall(r"\d+", color)[:3]]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


@pytest.mark.nightly(cases=1)
@pytest.mark.parametrize(("width", "dark"), WIDTHS)
@pytest.mark.parametrize("name", ["unet_float32", "mobilenet_int8", "wrong"])
def test_report_layout_does_not_overlap(folder: Path, name: str, width: int, *, dark: bool) -> None:
    """No text overflows or overlaps, and contrasts suffice, in the light and in the dark theme."""
    told = evaluate_script(folder / f"{name}.html", LAYOUT, width=width, dark=dark)
    assert told["wide"] <= told["inner"] == width
    assert told["high"] <= 12 * 900
    ink, paper = luminance(told["ink"]), luminance(told["paper"])
    assert (paper < ink) == dark
    assert (max(ink, paper) + 0.05) / (min(ink, paper) + 0.05) > 7
    assert min(told["sizes"]) >= 11
    for before, after in pairwise(told["flow"]):
        assert after["top"] >= before["bottom"] - 0.5, (before, after)
    labels = sorted(told["labels"], key=lambda box: box["top"])
    for before, after in pairwise(labels):
        assert after["top"] >= before["bottom"] - 6
    assert len(told["rows"]) == len(told["marks"])
    for row, mark in zip(told["rows"], told["marks"], strict=True):
        assert row["top"] <= mark["top"] < mark["bottom"] <= row["bottom"]
    assert told["cells"] == 0
    assert told["sideways"] == 0 or width == 390


CLICKS = """
  const rows = [...page.querySelectorAll("tr[data-key], .strip li")];
  const field = page.querySelector(".search input"), dialog = page.querySelector("dialog");
  const press = (target, key) => target.dispatchEvent(
    new view.KeyboardEvent("keydown", {key, bubbles: true}));
  const search = (words) => {
    field.value = words;
    field.dispatchEvent(new view.Event("input"));
    return rows.filter((row) => row.cells && !row.hidden && row.offsetHeight);
  };
  const names = [...new Set(rows.filter((row) => row.cells).map((row) => row.dataset.key))];
  const lost = names.filter((name) => !search(name).some((row) => row.dataset.key == name));
  const none = search("no such operator").length, open = page.querySelector("details[open]");
  const kinds = search("depthwise_conv_2d").map((row) => row.cells[1].textContent);
  const dimmed = page.querySelectorAll(".strip .missed").length;
  search("");
  const table = rows.find((row) => row.cells).closest("table"), body = table.tBodies[0];
  const column = () => [...body.rows].map((row) => Number(row.cells[0].textContent));
  const number = table.querySelector("th button");
  number.click();
  const up = column();
  number.click();
  const down = column();
  press(page.body, "/");
  const focused = page.activeElement === field;
  const first = body.rows[0];
  first.tabIndex = 0;
  first.focus();
  press(first, "ArrowDown");
  const second = page.activeElement === body.rows[1];
  press(page.activeElement, "Enter");
  const byKey = dialog.open && dialog.innerText;
  dialog.querySelector("button").click();
  const closed = !dialog.open;
  const conv = rows.find((row) => row.cells && row.cells[1].textContent === "CONV_2D");
  conv.cells[2].click();
  const told = dialog.innerText, key = conv.dataset.key;
  const fits = dialog.scrollWidth <= dialog.clientWidth;
  dialog.close();
  rows.find((row) => row.textContent.startsWith("Conv")).click();
  const node = dialog.innerText;
  return {names: names.length, lost, none, open: !open, kinds, dimmed, up, down, focused, second,
    byKey, closed, told, key, fits, node, wide: page.scrollingElement.scrollWidth};
"""


@pytest.mark.nightly(cases=1)
@pytest.mark.parametrize("width", [400, 1400])
def test_search_sort_and_details(folder: Path, width: int) -> None:
    """Search finds every row, headings sort, and a click or Enter shows the details of a row."""
    told: dict[str, Any] = evaluate_script(folder / "mobilenet_int8.html", CLICKS, width=width)
    assert "error" not in told, told
    assert told["names"] > 60
    assert told["lost"] == []
    assert told["none"] == 0
    assert told["open"]
    assert "DEPTHWISE_CONV_2D" in told["kinds"]
    assert all("DEPTHWISE_CONV_2D" in kind for kind in told["kinds"])
    assert told["dimmed"] > 0
    assert told["up"] == told["down"][::-1] == sorted(told["up"])
    assert told["focused"]
    assert told["second"]
    assert told["closed"]
    assert told["byKey"].splitlines()[0]
    assert told["told"].startswith(told["key"])
    for words in ("Verdict", "Layout in ONNX", "NCHW", "stride_h: ", "Operands", "int8"):
        assert words in told["told"], words
    assert "kernel_shape: [" in told["node"]
    assert told["fits"]
    assert told["wide"] <= width


ZOOM = """
  const strip = page.querySelector(".strip"), bar = page.querySelector(".zoom");
  const dialog = page.querySelector("dialog"), drawing = strip.firstElementChild;
  const box = (e) => e.getBoundingClientRect();
  const percent = () => bar.querySelector("[role=status]").textContent;
  const [out, larger, whole, fit] = bar.querySelectorAll("button");
  const size = () => ({
    percent: percent(), width: box(drawing).width, row: box(page.querySelector(".strip li")).height,
    top: strip.scrollTop, left: strip.scrollLeft});
  const point = (type, x, y, target = drawing) => target.dispatchEvent(
    new view.PointerEvent(type, {clientX: x, clientY: y, bubbles: true, pointerType: "mouse"}));
  const wait = () => new Promise((done) => setTimeout(done, 20));
  const told = {first: size()};
  larger.click();
  larger.click();
  told.larger = size();
  const {left, top} = box(strip);
  point("pointerdown", left + 200, top + 300);
  point("pointermove", left + 120, top + 200);
  told.moved = size();
  const row = page.querySelectorAll(".strip li")[3];
  point("pointerup", left + 120, top + 200);
  row.click();
  told.openAfterMoving = dialog.open;
  await wait();
  point("pointermove", left + 20, top + 20);
  told.released = size();
  row.click();
  told.openAfterClick = dialog.open;
  dialog.close();
  whole.click();
  told.whole = size();
  fit.click();
  told.fit = {...size(), high: strip.scrollHeight <= strip.clientHeight + 1,
    wide: strip.scrollWidth <= strip.clientWidth + 1};
  const press = (key) => strip.dispatchEvent(
    new view.KeyboardEvent("keydown", {key, bubbles: true, cancelable: true}));
  press("0");
  press("-");
  told.keys = size();
  press("0");
  strip.dispatchEvent(new view.WheelEvent("wheel",
    {deltaY: -200, ctrlKey: true, clientX: left + 50, clientY: top + 50, cancelable: true}));
  told.wheel = size();
  strip.dispatchEvent(new view.WheelEvent("wheel", {deltaY: -200, cancelable: true}));
  told.plain = size();
  const field = page.querySelector(".search input");
  field.value = "globalaveragepool";
  field.dispatchEvent(new view.Event("input"));
  const node = page.querySelector(".strip li:not(.missed)");
  told.found = box(node).top >= box(strip).top && box(node).bottom <= box(strip).bottom;
  told.page = page.scrollingElement.scrollWidth;
  return told;
"""


@pytest.mark.nightly(cases=1)
@pytest.mark.parametrize("width", [400, 1400])
def test_drawing_is_zoomed_and_moved(folder: Path, width: int) -> None:
    """Buttons, keys and the wheel zoom the graph; dragging moves it, and is no click."""
    told: dict[str, Any] = evaluate_script(folder / "mobilenet_int8.html", ZOOM, width=width)
    assert "error" not in told, told
    assert told["first"]["percent"] == told["whole"]["percent"] == "100 %"
    assert told["first"]["row"] == told["whole"]["row"] == pytest.approx(22)
    assert told["larger"]["percent"] == "156 %"
    assert told["larger"]["row"] == pytest.approx(22 * 1.25**2, rel=0.01)
    assert told["moved"]["top"] == pytest.approx(told["larger"]["top"] + 100, abs=1)
    assert told["moved"]["left"] > told["larger"]["left"] or width == 1400
    assert not told["openAfterMoving"]
    assert told["released"] == told["moved"]
    assert told["openAfterClick"]
    assert told["fit"]["high"]
    assert told["fit"]["wide"]
    assert told["keys"]["percent"] == "80 %"
    assert told["wheel"]["percent"] == "149 %"
    assert told["plain"] == told["wheel"]
    assert told["found"]
    assert told["page"] <= width


NETRON = """
  const link = page.getElementById("netron"), dialog = page.querySelector("dialog");
  const opened = [];
  view.open = (address) => { opened.push(address); };
  link.focus();
  link.click();
  for (let i = 0; i < 100 && !opened.length && !dialog.open; i++) {
    await new Promise((done) => setTimeout(done, 20));
  }
  return {opened, words: dialog.open ? dialog.innerText : "", focus: page.activeElement === link,
    wide: page.scrollingElement.scrollWidth};
"""


def test_page_opens_the_model_in_netron(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A click opens the model if Netron runs, or shows the command that starts Netron."""
    monkeypatch.chdir(tmp_path)
    Path("model.tflite").write_bytes(chain("ABS"))
    words = ["-q", "model.tflite", "a model.onnx", "--report", "page.html"]
    monkeypatch.setattr(netron, "find_spec", lambda _: None)
    assert main(words) == 0
    assert 'id="netron"' not in Path("page.html").read_text()
    monkeypatch.setattr(netron, "find_spec", lambda _: netron.__spec__)
    assert main(words) == 0
    page = Path("page.html").resolve()
    (port,) = map(int, re.findall(r"localhost:(\d+)", page.read_text()))
    command = f"netron --port {port} --browse '{Path('a model.onnx').absolute()}'"
    told: dict[str, Any] = evaluate_script(page, NETRON, width=400)
    assert told["opened"] == []
    assert command in " ".join(told["words"].split())
    assert told["wide"] <= 400
    with ThreadingHTTPServer(("localhost", port), BaseHTTPRequestHandler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        told = evaluate_script(page, NETRON, width=400)
        server.shutdown()
    assert told["opened"] == [f"http://localhost:{port}/"]
    assert told["words"] == ""


HOVER = """
  const plot = page.querySelector(".plot"), box = plot.getBoundingClientRect();
  const tip = plot.querySelector(".tip"), found = [];
  for (const part of [0, 0.3, 1]) {
    plot.dispatchEvent(new view.PointerEvent("pointermove", {
      clientX: box.left + part * box.width, clientY: box.top + 20, bubbles: true}));
    found.push({text: tip.innerText, ...tip.getBoundingClientRect().toJSON()});
  }
  plot.dispatchEvent(new view.PointerEvent("pointerleave"));
  const hidden = view.getComputedStyle(tip).display;
  plot.dispatchEvent(new view.KeyboardEvent("keydown", {key: "ArrowRight"}));
  const first = tip.innerText;
  plot.dispatchEvent(new view.KeyboardEvent("keydown", {key: "ArrowRight"}));
  return {found, hidden, first, second: tip.innerText};
"""


@pytest.mark.nightly(cases=1)
@pytest.mark.parametrize("width", [390, 1100])
def test_pointer_and_arrow_keys_show_tensors(folder: Path, width: int) -> None:
    """The pointer shows the nearest tensor; the arrow keys select the next tensor."""
    told: dict[str, Any] = evaluate_script(folder / "wrong.html", HOVER, width=width)
    names = [each["text"].splitlines()[0] for each in told["found"]]
    assert names == ["first", "pooled", "soft"]
    for each in told["found"]:
        assert 0 <= each["left"] < each["right"] <= width
        assert each["height"] > 30
    assert "CONV_2D, operator 0" in told["found"][0]["text"]
    assert told["hidden"] == "none"
    assert told["first"].startswith("first")
    assert told["second"].startswith("pooled")


def test_page_says_which_rules_apply_and_why_others_do_not() -> None:
    """The lines of rules and forms that `tflite2onnx -v` prints, in two folded lists."""
    m = Build()
    x = m.input([6, 7])
    (y,) = m.op("PACK", [x, x], [[2, 6, 7]], axis=0, values_count=2)
    (y,) = m.op("LOGISTIC", [y], [[2, 6, 7]])
    m.output(y)
    facts = gather_facts(m.bytes(), per_operator=False)
    (packed,) = (line for line in facts.changes if line.endswith(": PACK"))
    assert not any("not replaced as" in line for line in facts.changes)
    html = write_page(facts)
    assert packed in "".join(Tree(html).text)
    applied, others = re.findall(
        r"<details>.*?</details>", html[html.index(">Rules<") :], re.DOTALL
    )
    assert packed in applied
    assert "not replaced as LOGISTIC of scores" in others
