"""Custom operators: with LiteRT kernels, from Google's research code and from converters."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from tests.conformance.bench import QUANTIZED, Array, Bench
from tests.conformance.rows.elementwise import RANKS, SIZES, kinds
from tests.conformance.table import Row
from tests.contrib.signal import test_inverse_rfft, test_spectrogram
from tests.op.indexing import test_embedding, test_integer_table
from tests.op.linear import test_attention, test_hadamard, test_kv_cache
from tests.op.movement import test_roll
from tests.op.recurrent import test_gated_delta, test_gru
from tests.op.vision import test_detection, test_pool3d
from tests.references.genai import run_litert
from tests.support import Tensor

_CLASSES = test_detection.CLASSES


def detection(
    b: Bench, code: str, *, changes: dict[str, Any], regular: bool, width: int, constant: bool
) -> None:
    """Build a detection with many equal scores, but different scores within a box."""
    del code
    words = test_detection.options(use_regular_nms=regular, **changes)
    boxes, levels = test_detection.BOXES, 31
    scores = b.generator.integers(0, levels, (1, boxes, _CLASSES + 1)) / levels
    if words["max_classes_per_detection"] > 1:
        # The kernel's order of equal classes of one box is arbitrary.
        scores = scores.argsort(-1) / 8 + 1e-3 * b.generator.random(scores.shape)
    encoded, anchors = b.generator.normal(0, 1, (1, boxes, width)), test_detection.anchors()
    operands = [
        _real_input(b, encoded, 0.03),
        _real_input(b, scores, 1 / 256),
        _real_input(b, anchors, 1 / 200, constant=constant),
    ]
    b.add_outputs(*_mask_unset(b, test_detection.add_detection(b, operands, words), words))


def _real_input(b: Bench, values: Array, scale: float, *, constant: bool = False) -> Tensor:
    """Return a tensor of real numbers, quantized if the kind is quantized."""
    make = b.add_constant if constant else b.add_input
    dtype = QUANTIZED.get(b.kind)
    if dtype is None:
        return make(values.shape, within=values)
    limits = np.iinfo(dtype if dtype != "int4" else "int8")
    zero = int(limits.min) + (128 if values.min() < 0 else 0)
    stored = np.clip(np.rint(values / scale) + zero, limits.min, limits.max)
    return make(values.shape, {"dtype": dtype, "scale": scale, "zero_point": zero}, stored)


def _mask_unset(b: Bench, outputs: list[Tensor], words: dict[str, Any]) -> list[Tensor]:
    """Return the outputs with 0 for elements that LiteRT's kernel does not write."""
    classes = 1 if words["use_regular_nms"] else words["max_classes_per_detection"]
    made = []
    for tensor in outputs[:3]:
        room = tensor.shape[1]
        shape = (1, room, *(1 for _ in tensor.shape[2:]))
        # Classes that do not exist get a place after all detections.
        places = np.arange(room) // classes + room * (np.arange(room) % classes >= _CLASSES)
        place = b.constant(places.astype(np.float32).reshape(shape))
        (written,) = b.op("LESS", [place, outputs[3]], [shape], dtype="bool")
        zero = b.constant(np.float32(0))
        made += b.op("SELECT_V2", [written, tensor, zero], [tensor.shape])
    return [*made, outputs[3]]


def spectrogram(
    b: Bench, code: str, *, channels: int, window: tuple[int, int], squared: bool
) -> None:
    """Build the spectrogram of sound."""
    del code
    x = b.add_input((499, channels), within=(-1, 1))
    b.add_outputs(test_spectrogram.spectrogram(b, x, *window, squared=squared))


def coefficients(
    b: Bench, code: str, *, shape: tuple[int, ...], changes: dict[str, Any], constant: bool
) -> None:
    """Build MFCCs of a power spectrum, of a sample rate that is constant or an input."""
    del code
    x = b.add_input(shape, within=(0, 100))
    options = {"rate": 16000, **changes}
    if not constant:
        options["rate"] = b.add_input((1,), "int32", within=np.array([options["rate"]], np.int32))
    b.add_outputs(test_spectrogram.mfcc(b, x, **options))


def rotation(b: Bench, code: str, *, case: tuple[list[int], int]) -> None:
    """Build the rotation of blocks of the last axis."""
    shape, size = case
    options = {"hadamard_size": size, "random_binary_vector": [1, -1]}
    b.add_outputs(*b.custom(code, [b.add_input(shape)], [b.output_tensor(shape)], options))


def verification(b: Bench, code: str, *, rank: int) -> None:
    """Build NumericVerify, which computes stored values minus reference values."""
    shape = SIZES[:rank]
    operands = [b.add_input(shape), b.add_input(shape, "float32")]
    b.add_outputs(
        *b.custom(code, operands, [b.output_tensor(shape, "float32")], {"tolerance": 5.0})
    )


def roll(b: Bench, code: str, *, move: tuple[Any, Any], index: str) -> None:
    """Build Roll along axes, some of which are listed twice."""
    shape, (shifts, axes) = (2, 5, 7, 3), (np.array(each) for each in move)
    operands = [
        b.add_input(shape),
        *(b.add_constant(each.shape, index, each) for each in (shifts, axes)),
    ]
    b.add_outputs(*b.custom(code, operands, [b.output_tensor(shape)]))


def inverse_fourier(b: Bench, code: str, *, case: tuple[tuple[int, ...], Any, Any]) -> None:
    """Build the inverse transform of spectra, some of which have no real signal."""
    lead, size, lengths = case
    spectrum = np.fft.rfft2(b.draw((*lead, *size), "float32"))
    operands = [
        b.add_input(spectrum.shape, within=spectrum),
        b.add_constant((2,), "int32", np.array(lengths)),
    ]
    b.add_outputs(*b.custom(code, operands, [b.output_tensor((*lead, *lengths), "float32")]))


def pool(b: Bench, code: str, *, window: Any, padding: str) -> None:
    """Build pooling of volumes."""
    shape, fields = (2, 5, 7, 4, 3), b.type()
    x = b.add_input(shape, fields)
    counts = test_pool3d.counts(shape[1:4], window, padding)
    kernel, strides = window
    options = test_pool3d.options(kernel, strides, padding)
    b.add_outputs(*b.custom(code, [x], [b.output_tensor((2, *counts, 3), fields)], options))


def gated_delta(b: Bench, code: str, *, sizes: tuple[int, ...]) -> None:
    """Build the update of a state by tokens of linear attention."""
    drawn = test_gated_delta.draw_operands(*sizes)
    operands = [b.add_input(each.shape, within=each) for each in drawn]
    made = [b.output_tensor(drawn[i].shape) for i in (2, 5)]
    b.add_outputs(*b.custom(code, operands, made))


def triangular_inverse(b: Bench, code: str, *, shape: tuple[int, ...]) -> None:
    """Build inverses of triangular matrices."""
    b.add_outputs(*b.custom(code, [b.add_input(shape, within=(-1, 1))], [b.output_tensor(shape)]))


def gru(b: Bench, code: str, *, sizes: tuple[int, int, int, int]) -> None:
    """Build a GRU over a sequence whose first axis is time."""
    times, batch, inputs, units = sizes
    operands = [b.add_input((times, batch, inputs)), b.add_input((batch, units), within=(-1, 1))]
    weights = test_gru.parameters(inputs, units)
    operands += [b.add_constant(each.shape, within=each) for each in weights]
    b.add_outputs(
        *b.custom(
            code,
            operands,
            [b.output_tensor((times, batch, units)), b.output_tensor((batch, units))],
        )
    )


def table(b: Bench, code: str, *, rank: int, smooth: bool) -> None:
    """Build a lookup by stored integers."""
    fields, shape = b.type(), SIZES[:rank]
    values = test_integer_table.values(str(fields["dtype"]), smooth=smooth)
    operands = [
        b.add_input(shape, fields),
        b.add_constant(values.shape, str(fields["dtype"]), values),
    ]
    b.add_outputs(*b.custom(code, operands, [b.output_tensor(shape, fields)]))


def attention(b: Bench, code: str, *, heads: Any, options: dict[str, Any]) -> None:
    """Build attention in which several query heads share a key head."""
    arrays = test_attention.operands(heads)
    operands = [b.add_input(each.shape, within=each) for each in arrays]
    q, _, v, _ = (each.shape for each in arrays)
    b.add_outputs(*b.custom(code, operands, [b.output_tensor((*q[:3], v[3]))], options))


def cache(b: Bench, code: str, *, positions: list[int]) -> None:
    """Build the update of a cache that is an input."""
    kept, new = (1, 11, 3, 5), (1, len(positions), 3, 5)
    places = np.array(positions)
    operands = [b.add_input(kept), b.add_input(kept), b.add_input(places.shape, "int32", places)]
    operands += [b.add_input(new), b.add_input(new)]
    b.add_outputs(*b.custom(code, operands, [b.output_tensor(kept), b.output_tensor(kept)]))


def run_external_cache(*operands: Array) -> list[Array]:
    """Return the outputs of LiteRT's kernel."""
    kept, _, places, new, _ = operands
    data = test_kv_cache.build_external_cache(kept.shape, new.shape, places.size).bytes()
    return run_litert(data, operands)[0]


def build_kept_cache(b: Bench, code: str, *, count: int) -> None:
    """Build the update of a cache in the operator's state; a full cache starts again at 0."""
    most, new = 7, (1, count, 3, 5)
    b.over[0] = [np.arange(run, run + count) for run in range(_RUNS)]
    operands = [b.add_input((count,), "int64", b.over[0][0]), b.add_input(new), b.add_input(new)]
    made = [b.output_tensor((1, most, 3, 5)), b.output_tensor((1, most, 3, 5))]
    b.add_outputs(*b.custom(code, operands, made, {"kv_cache_max": most}))


class Kept:
    """Runs LiteRT's kernel with state: every call repeats all earlier runs."""

    def __init__(self, count: int) -> None:
        self.data = test_kv_cache.build_kept_cache(count, {"kv_cache_max": 7}, 7).bytes()
        self.runs: list[list[Array]] = []

    def __call__(self, *inputs: Array) -> list[Array]:
        """Return the outputs of the next run."""
        self.runs.append([*inputs])
        return run_litert(self.data, *self.runs)[-1]


def mean_of_tokens(b: Bench, code: str, *, tokens: list[int], blocks: int, size: int) -> None:
    """Build the mean of the embeddings of all tokens before the first 0."""
    operands = [
        b.add_input((1, len(tokens)), "int32", np.array(tokens)),
        b.add_constant((test_embedding.ROWS, blocks), "uint8", (0, 12)),
        b.add_constant((13, size)),
    ]
    b.add_outputs(*b.custom(code, operands, [b.output_tensor((1, blocks * size))]))


_RUNS = 11
_ONE = ("random",)
_VARIANTS = (*test_detection.VARIANTS, *test_detection.REGULAR)

ROWS = (
    Row(
        "TFLite_Detection_PostProcess",
        detection,
        kinds("float32 qu8"),
        {
            "changes": _VARIANTS,
            "regular": (False, True),
            "width": (4, 7),
            "constant": (True, False),
        },
        _ONE,
    ),
    Row(
        "AudioSpectrogram",
        spectrogram,
        kinds("float32"),
        {"channels": (1, 3), "window": test_spectrogram.WINDOWS, "squared": (True, False)},
    ),
    Row(
        "Mfcc",
        coefficients,
        kinds("float32"),
        {
            "changes": test_spectrogram.COEFFICIENTS,
            "shape": ((2, 5, 257), (1, 3, 129)),
            "constant": (True, False),
        },
    ),
    Row(
        "aeq.hadamard_rotation",
        rotation,
        kinds("float32"),
        {"case": test_hadamard.BLOCKS},
        without={"int32": "not converted: the kernel reads the elements as float32"},
    ),
    Row("NumericVerify", verification, kinds("float16 q8 qu8 q16"), {"rank": RANKS}),
    Row(
        "Roll",
        roll,
        test_roll.TYPES,
        {"move": test_roll.SHIFTS, "index": ("int32", "int64")},
        exact=True,
        reference=test_roll.roll_reference,
    ),
    Row(
        "IRFFT2D",
        inverse_fourier,
        kinds("complex64"),
        {"case": test_inverse_rfft.SIZES},
        _ONE,
        reference=test_inverse_rfft.inverse,
    ),
    *(
        Row(
            code,
            pool,
            kinds("float32 q8 q16"),
            {"window": test_pool3d.WINDOWS, "padding": ("SAME", "VALID")},
            exact=not average,
            reference=partial(test_pool3d.pool_reference, average=average),
            told=("window", "padding"),
        )
        for code, average in (("AvgPool3D", True), ("MaxPool3D", False))
    ),
    Row(
        "UNIDIRECTIONAL_SEQUENCE_GRU",
        gru,
        kinds("float32"),
        {"sizes": test_gru.SIZES},
        reference=test_gru.gru,
    ),
    Row(
        "gated_delta_update",
        gated_delta,
        kinds("float32"),
        {"sizes": test_gated_delta.SIZES},
        reference=test_gated_delta.update,
    ),
    Row(
        "gdn_tril_inv",
        triangular_inverse,
        kinds("float32"),
        {"shape": test_gated_delta.MATRICES},
        reference=test_gated_delta.invert,
    ),
    Row(
        "Table",
        table,
        kinds("q8 q16"),
        {"rank": RANKS, "smooth": (True, False)},
        exact=True,
        reference=test_integer_table.look_up,
    ),
    Row(
        test_attention.CODE,
        attention,
        kinds("float32"),
        {"heads": test_attention.HEADS, "options": test_attention.OPTIONS},
        _ONE,
        reference=test_attention.run_attention,
        told=("options",),
        limits="compared with LiteRT's delegate: the kernel reads a transposed matrix wrongly",
    ),
    Row(
        test_kv_cache.CODE,
        cache,
        kinds("float32"),
        {"positions": test_kv_cache.POSITIONS},
        exact=True,
        reference=run_external_cache,
    ),
    Row(
        test_kv_cache.KEPT,
        build_kept_cache,
        kinds("float32"),
        {"count": (1, 2)},
        _ONE,
        exact=True,
        runs=_RUNS,
        stream=Kept,
        told=("count",),
    ),
    Row(
        "KmeansEmbeddingLookup",
        mean_of_tokens,
        kinds("float32"),
        {"tokens": test_embedding.SENTENCES, "blocks": (3, 7), "size": (5, 1)},
        reference=test_embedding.mean_of_tokens,
    ),
)
