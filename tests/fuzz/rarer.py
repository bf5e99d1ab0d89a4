"""Small models with rarer features: tables, spectra, lists, dynamic sizes, Flex operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tests.contrib.hash_tables import test_hash_table
from tests.contrib.signal import test_rfft
from tests.op.indexing import test_where_unique
from tests.op.vision import test_detection, test_non_max_suppression
from tests.passes.patterns.test_fuse_list_assignment import build_set_item
from tests.support import Build
from tests.support.control import add_if, apply_operator, build_growing_list
from tests.support.flex import flex_options
from tests.support.metadata import pack_metadata
from tests.support.reading import float32, int32

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.support import Subgraph, Tensor


def detection(*, regular: bool) -> bytes:
    """Build a detection with options in a flexbuffer."""
    m = Build()
    words = test_detection.options(use_regular_nms=regular)
    test_detection.detector(m, words, boxes=11, declared=not regular)
    return m.bytes()


def suppression() -> bytes:
    """Build non-maximum suppression."""
    m = Build()
    m.output(*test_non_max_suppression.add_suppression(m, 5, 3, 0.5, 0.1))
    m.output(*test_non_max_suppression.add_suppression(m, 5, 3, 0.5, 0.1, 0.3))
    return m.bytes()


def tables() -> bytes:
    """Build both kinds of hash tables, filled in the main and in another sub-graph."""
    m = Build()
    words = test_hash_table.add_initialised_table(
        m, 7, test_hash_table.NUMBERS, test_hash_table.WORDS
    )
    numbers = test_hash_table.add_filled_table(m, 8, test_hash_table.WORDS, test_hash_table.NUMBERS)
    m.output(test_hash_table.add_find(m, words, [3], "string", m.constant(["?"])))
    m.output(test_hash_table.add_find(m, numbers, [3], "int64", m.constant(np.array([3]))))
    m.output(*m.op("HASHTABLE_SIZE", [words], [m.tensor([1], dtype="int64")]))
    m.output(*test_hash_table.add_lookup(m, m.constant(np.ones((5, 2), np.float32))))
    return m.bytes()


def spectrum() -> bytes:
    """Build complex numbers: computed, sliced, and cast from real numbers."""
    m = Build()
    x = test_rfft.spectrum(m, [3, 4, 8])
    (x,) = m.op("MUL", [x, x], [x.shape])
    (y,) = m.op("TRANSPOSE", [x, m.constant(int32([2, 0, 1]))], [[5, 3, 4]])
    bounds = [m.constant(int32(each)) for each in ([0, 0, 0], [5, 2, 3], [2, 1, 1])]
    m.output(*test_rfft.add_parts(m, m.op("STRIDED_SLICE", [y, *bounds], [[3, 2, 3]])[0]))
    (z,) = m.op(
        "CAST",
        [m.input([3, 4, 5])],
        [m.tensor([3, 4, 5], dtype="complex64")],
        in_data_type="float32",
        out_data_type="complex64",
    )
    (z,) = m.op("MUL", [z, x], [x.shape])
    m.output(*m.op("COMPLEX_ABS", [z], [x.shape], dtype="float32"))
    m.output(*m.op("SHAPE", [y], [[3]], dtype="int32", out_type="int32"))
    return m.bytes()


def build_where() -> bytes:
    """Build operators with data-dependent sizes."""
    m = Build()
    x = m.input([3, 5])
    places = test_where_unique.add_where(m, x)
    m.output(places, *test_where_unique.unique(m, m.input([None], dtype="int32")))
    (some,) = m.op("GATHER_ND", [x, places], [m.tensor([None])])
    m.output(some, *m.op("SUM", [some, m.constant(int32([0]))], [[]]))
    return m.bytes()


def build_dynamic_sizes() -> bytes:
    """Build dynamic sizes, and shapes that are computed from them."""
    m = Build()
    x = m.input([None, 4, None, 2])
    (sizes,) = m.op("SHAPE", [x], [[4]], dtype="int32", out_type="int32")
    bounds = [m.constant(int32(each)) for each in ([0], [1], [1])]
    (batch,) = m.op("STRIDED_SLICE", [sizes, *bounds], [[]], shrink_axis_mask=1)
    shape = m.op("PACK", [batch, m.constant(int32(-1))], [[2]], axis=0, values_count=2)
    (y,) = m.op("RESHAPE", [x, *shape], [(None, None)])
    (y,) = m.op("TRANSPOSE", [y, m.constant(int32([1, 0]))], [(None, None)])
    m.output(*m.op("CONCATENATION", [y, y], [(None, None)], axis=0))
    ends = [m.constant(int32(0)), batch, m.constant(int32(1))]
    m.output(*m.op("RANGE", ends, [m.tensor([None], dtype="int32")]))
    (z,) = m.op("FILL", [sizes, m.constant(float32(2))], [m.tensor([None, 4, None, 2])])
    (z,) = m.op("ADD", [z, x], [m.tensor([None, 4, None, 2])])
    m.output(*m.op("MEAN", [z, m.constant(int32([1, 2]))], [(None, 2)]))
    return m.bytes()


def flex() -> bytes:
    """Build TensorFlow operators, whose options are a protobuf in a flexbuffer."""
    m = Build()
    window = {"ksize": [1, 3, 2, 1], "strides": [1, 2, 2, 1], "padding": "SAME"}
    shape = [1, 3, 4, 3]
    options = flex_options("MaxPool", data_format="NHWC", **window)
    (x,) = m.custom("FlexMaxPool", [m.input([1, 5, 7, 3])], [shape], options)
    bias = m.constant(np.ones(3, np.float32))
    options = flex_options("BiasAdd", data_format="NHWC")
    (x,) = m.custom("FlexBiasAdd", [x, bias], [shape], options)
    (x,) = m.custom("FlexRelu", [x], [shape], flex_options("Relu"))
    m.output(*m.custom("FlexCast", [x], [m.tensor(shape, dtype="int32")], flex_options("Cast")))
    return m.bytes()


def build_metadata() -> bytes:
    """Build a model with metadata."""
    m = Build()
    m.output(*m.op("ABS", [m.input([1, 3])], [[1, 3]]))
    ends = {
        f"{kind}_tensor_metadata": [{"name": kind, "description": "numbers"}]
        for kind in ("input", "output")
    }
    said = {"name": "a model", "author": "somebody", "subgraph_metadata": [{"name": "g", **ends}]}
    m.metadata("TFLITE_METADATA", pack_metadata(said))
    return m.bytes()


def build_dilated_convolution() -> bytes:
    """Build a dilated convolution of three operators."""
    m = Build()
    blocks, none = m.constant(int32([2, 2])), m.constant(int32([[0, 0], [0, 0]]))
    edges = m.constant(int32([[2, 2], [2, 2]]))
    weights = m.constant(np.ones((2, 3, 3, 2), np.float32))
    window: dict[str, Any] = {"stride_h": 1, "stride_w": 1, "padding": "VALID"}
    (x,) = m.op("SPACE_TO_BATCH_ND", [m.input((1, 8, 8, 2)), blocks, edges], [(4, 6, 6, 2)])
    (x,) = m.op("CONV_2D", [x, weights, None], [(4, 4, 4, 2)], **window)
    m.output(*m.op("BATCH_TO_SPACE_ND", [x, blocks, none], [(1, 8, 8, 2)]))
    return m.bytes()


def branches() -> bytes:
    """Build nested branches; the inner condition is constant."""
    m = Build()

    def inner(graph: Subgraph, xs: Sequence[Tensor]) -> list[Tensor]:
        always = graph.constant(np.array(True))
        return add_if(m, always, xs, apply_operator("ABS"), apply_operator("NEG"), at=graph)

    m.output(
        *add_if(m, m.input([], dtype="bool"), [m.input((2, 3))], inner, apply_operator("TANH"))
    )
    return m.bytes()


RARER: dict[str, Callable[[], bytes]] = {
    "detection": lambda: detection(regular=False),
    "regular detection": lambda: detection(regular=True),
    "suppression": suppression,
    "tables": tables,
    "spectrum": spectrum,
    "found": build_where,
    "dynamic": build_dynamic_sizes,
    "flex": flex,
    "described": build_metadata,
    "dilated": build_dilated_convolution,
    "branches": branches,
    "list": lambda: build_set_item().bytes(),
    "growing": lambda: build_growing_list(2).bytes(),
}
