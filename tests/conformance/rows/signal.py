"""The microcontroller front end, which LiteRT has no kernels for: equal to tests.references."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.conformance.bench import Array, Bench
from tests.conformance.rows.elementwise import kinds
from tests.conformance.table import Row
from tests.contrib.signal import (
    test_microfrontend,
    test_tflm_fft,
    test_tflm_frontend,
    test_tflm_streaming,
)
from tests.contrib.signal.test_tflm_frontend import energies, samples
from tests.references import microfrontend, signals, streams, transforms

Shape = tuple[int, ...]
_RUNS = test_tflm_streaming.RUNS
_EVERY = (-(1 << 31), (1 << 31) - 1)
_LEADS = ((), (2, 3))


def window(b: Bench, code: str, *, shape: Shape, shift: int) -> None:
    """Build the product of samples and a constant window."""
    operands = [b.add_input(shape), b.add_constant(shape[-1:], within=(0, 32767))]
    b.add_outputs(*b.custom(code, operands, [b.output_tensor(shape)], {"shift": shift}))


def build_auto_scale(b: Bench, code: str, *, largest: int, sign: int) -> None:
    """Build scaling of samples with unused high bits."""
    x = samples(37, low=-largest, high=largest)
    x[5] = sign * largest
    outputs = [b.output_tensor(x.shape), b.output_tensor((1,), "int32")]
    b.add_outputs(*b.custom(code, [b.add_input(x.shape, within=x)], outputs))


def auto_scale(x: Array) -> list[Array]:
    """Return the reference outputs: scaled samples, and the number of bits as a tensor."""
    y, bits = signals.auto_scale(x)
    return [y, np.array([bits])]


def transform(b: Bench, code: str, *, lead: Shape, lacking: int, length: int) -> None:
    """Build a transform; the number of samples may be below its length."""
    pairs = length // 2 * 2 + 2
    given, made = (length - lacking, pairs) if code == "SignalRfft" else (pairs, length)
    x = b.add_input((*lead, given), within=(-1, 1) if b.kind == "float32" else _EVERY)
    options = {"T": test_tflm_fft.TYPES[b.kind], "fft_length": length}
    b.add_outputs(*b.custom(code, [x], [b.output_tensor((*lead, made))], options))


def transform_samples(x: Array, length: int) -> Array:
    """Return the reference output; integers use the fixed point of KISS FFT."""
    if x.dtype == np.float32:
        return signals.rfft(x, length)
    wide = np.pad(x.reshape(-1, x.shape[-1]), [(0, 0), (0, length - x.shape[-1])])
    made = [transforms.real_transform(row, 8 * x.itemsize) for row in wide.tolist()]
    return np.array(made).reshape(*x.shape[:-1], -1)


def restore_samples(x: Array, length: int) -> Array:
    """Return the reference output of the inverse transform."""
    if x.dtype == np.float32:
        return np.asarray(np.fft.irfft(x[..., ::2] + 1j * x[..., 1::2], length))
    rows = x.reshape(-1, x.shape[-1]).tolist()
    made = [transforms.real_inverse(row, 8 * x.itemsize) for row in rows]
    return np.array(made).reshape(*x.shape[:-1], -1)


def energy(b: Bench, code: str, *, start: int, end: int) -> None:
    """Build the energies of some of the complex numbers."""
    options = {"start_index": start, "end_index": end}
    b.add_outputs(
        *b.custom(code, [b.add_input((514,))], [b.output_tensor((257,), "uint32")], options)
    )


def bands(b: Bench, code: str) -> None:
    """Build a filter bank with overlapping, empty and other bands."""
    operands = [b.add_input((257,), within=energies(257))]
    operands += [b.add_constant(each.shape, "int16", each) for each in test_tflm_frontend.tables()]
    b.add_outputs(*b.custom(code, operands, [b.output_tensor((5,), "uint64")], {"num_channels": 5}))


def build_square_root(b: Bench, code: str, *, bits: int) -> None:
    """Build square roots of squares and of their neighbours."""
    x = test_tflm_frontend.squares()
    operands = [b.add_input(x.shape, within=x), b.add_input((), "int32", np.array(bits))]
    b.add_outputs(*b.custom(code, operands, [b.output_tensor(x.shape, "uint32")]))


def logarithm(b: Bench, code: str, *, correction: int, scale: int) -> None:
    """Build logarithms of numbers of every bit length."""
    options = {"input_correction_bits": correction, "output_scale": scale}
    x = b.add_input((500,), within=energies(500))
    b.add_outputs(*b.custom(code, [x], [b.output_tensor((500,), "int16")], options))


def gains(b: Bench, code: str, *, shift: int) -> None:
    """Build the gain control of numbers by estimates of their noise."""
    x, noise = energies(500), energies(500)[::-1]
    operands = [b.add_input((500,), within=each) for each in (x, noise)]
    operands.append(b.add_constant((125,), "int16", (0, 2000)))
    b.add_outputs(*b.custom(code, operands, [b.output_tensor((500,))], {"snr_shift": shift}))


def delay(b: Bench, code: str, *, lead: Shape, length: int) -> None:
    """Build a delay of samples by some positions, over several runs."""
    shape = *lead, 7
    b.add_outputs(
        *b.custom(code, [b.add_input(shape)], [b.output_tensor(shape)], {"delay_length": length})
    )


def frames(b: Bench, code: str, *, lead: Shape, framing: Any, prefill: bool) -> None:
    """Build frames that overlap frames of earlier runs."""
    size, step, count = framing
    options = {"frame_size": size, "frame_step": step, "prefill": prefill}
    outputs = [b.output_tensor((*lead, count, size)), b.output_tensor((), "bool")]
    b.add_outputs(*b.custom(code, [b.add_input((*lead, step * count))], outputs, options))


def stack(b: Bench, code: str, *, stacking: Any) -> None:
    """Build stacks of frames of this run and of earlier runs."""
    channels, left, right, step = stacking
    options = {
        "num_channels": channels,
        "stacker_left_context": left,
        "stacker_right_context": right,
        "stacker_step": step,
    }
    outputs = [b.output_tensor((channels * (left + right + 1),)), b.output_tensor((), "bool")]
    b.add_outputs(*b.custom(code, [b.add_input((channels,))], outputs, options))


def addition(b: Bench, code: str, *, lead: Shape, case: Any) -> None:
    """Build the sum of overlapping frames."""
    count, size, step = case
    options = {"T": 7 if b.kind == "int16" else 0, "frame_step": step}
    x = b.add_input((*lead, count, size))
    b.add_outputs(*b.custom(code, [x], [b.output_tensor((*lead, count * step))], options))


def subtraction(b: Bench, code: str, *, clamping: int, bits: int) -> None:
    """Build the subtraction of a running noise estimate."""
    x = b.add_input((11,), within=energies(41)[30:])
    b.add_outputs(
        *b.custom(
            code,
            [x],
            [b.output_tensor((11,)), b.output_tensor((11,))],
            _subtraction_options(clamping, bits),
        )
    )


def _subtraction_options(clamping: int, bits: int) -> dict[str, int]:
    return {**test_tflm_streaming.SUBTRACTION, "clamping": clamping, "smoothing_bits": bits}


def build_circular_buffer(b: Bench, code: str, *, slots: tuple[int, Any]) -> None:
    """Build a buffer of the latest inputs in a variable tensor."""
    count, options = slots
    x = b.add_input((1, 1, 2, 3), test_tflm_streaming.SCALE)
    kept = b.tensor((1, count, 2, 3), variable=True, **test_tflm_streaming.SCALE)
    b.add_outputs(*b.custom(code, [x], [kept], options))


def features(b: Bench, code: str, *, sound: str, more: dict[str, Any]) -> None:
    """Build 16-bit features."""
    x = b.add_input((149,), "int16", test_microfrontend.make_sounds(149)[sound])
    options = {**test_microfrontend.SMALL, **more}
    made = microfrontend_features(b.operands[0], more, b.kind).shape
    b.add_outputs(*b.custom(code, [x], [b.output_tensor(made)], options))


def microfrontend_features(x: Array, more: dict[str, Any], kind: str) -> Array:
    """Return the reference output in a type."""
    options = {**test_microfrontend.SMALL, **more, "out_float": kind == "float32"}
    return microfrontend.features(x, options)


def apply_to_each(function: Callable[..., int]) -> Callable[..., Array]:
    """Return a reference that applies a function to each element."""
    return lambda x, *others, **told: np.array(
        [function(int(n), *(int(o) for o in others), **told) for n in x.ravel()]
    )


_INT16 = ("int16",)
_UINT32 = ("uint32",)
_ONE = ("random",)

ROWS = (
    Row(
        "SignalWindow",
        window,
        _INT16,
        {"shape": ((480,), (3, 7)), "shift": (12, 0, 1, 15, 31)},
        exact=True,
        reference=signals.window,
        told=("shift",),
    ),
    Row(
        "SignalFftAutoScale",
        build_auto_scale,
        _INT16,
        {"largest": (255, 0, 1, 2, 256, 16383, 16384, 32767), "sign": (1, -1)},
        _ONE,
        exact=True,
        reference=auto_scale,
    ),
    *(
        Row(
            code,
            transform,
            kinds("float32 int16 int32"),
            {"lead": ((), (3,)), "lacking": lacking, "length": test_tflm_fft.LENGTHS},
            reference=reference,
            told=("length",),
        )
        for code, lacking, reference in (
            ("SignalRfft", (0, 1), transform_samples),
            ("SignalIrfft", (0,), restore_samples),
        )
    ),
    Row(
        "SignalEnergy",
        energy,
        _INT16,
        {"start": (0, 4, 100), "end": (257, 129, 100)},
        exact=True,
        reference=signals.energy,
        told=("start", "end"),
    ),
    Row(
        "SignalFilterBank",
        bands,
        _UINT32,
        {},
        _ONE,
        exact=True,
        reference=lambda x, *tables: signals.filter_bank(x, 5, list(tables)),
    ),
    Row(
        "SignalFilterBankSquareRoot",
        build_square_root,
        ("uint64",),
        {"bits": (0, 1, 7, 31)},
        _ONE,
        exact=True,
        reference=apply_to_each(lambda n, bits: signals.square_root(n) >> bits),
    ),
    Row(
        "SignalFilterBankLog",
        logarithm,
        _UINT32,
        {"correction": (3, 0, 31, 5), "scale": (1600, 65536, 1, 1 << 20)},
        _ONE,
        exact=True,
        reference=apply_to_each(signals.logarithm),
        told=("correction", "scale"),
    ),
    Row(
        "SignalPCAN",
        gains,
        _UINT32,
        {"shift": (6, 0, 20)},
        _ONE,
        exact=True,
        reference=lambda x, noise, table, shift: np.array(
            [signals.pcan(int(n), int(m), table, shift) for n, m in zip(x, noise, strict=True)]
        ),
        told=("shift",),
    ),
    Row(
        "AudioMicrofrontend",
        features,
        ("int32", "float32", "uint16"),
        {"sound": test_microfrontend.SOUNDS, "more": test_microfrontend.CHANGES},
        _ONE,
        exact=True,
        reference=microfrontend_features,
        told=("more", "kind"),
    ),
    Row(
        "SignalDelay",
        delay,
        _INT16,
        {"lead": _LEADS, "length": test_tflm_streaming.DELAYS},
        _ONE,
        exact=True,
        runs=_RUNS,
        told=("lead", "length"),
        stream=lambda lead, length: streams.Delay(int(np.prod(lead)), length),
    ),
    Row(
        "SignalFramer",
        frames,
        _INT16,
        {"lead": ((), (3,)), "framing": test_tflm_streaming.FRAMINGS, "prefill": (False, True)},
        _ONE,
        exact=True,
        runs=_RUNS,
        told=("lead", "framing", "prefill"),
        stream=lambda lead, framing, prefill: streams.Framer(
            int(np.prod(lead)), *framing[:2], prefill=prefill
        ),
    ),
    Row(
        "SignalStacker",
        stack,
        _INT16,
        {"stacking": test_tflm_streaming.STACKINGS},
        _ONE,
        exact=True,
        runs=_RUNS,
        told=("stacking",),
        stream=lambda stacking: streams.Stacker(*stacking[1:]),
    ),
    Row(
        "SignalOverlapAdd",
        addition,
        ("int16", "float32"),
        {"lead": _LEADS, "case": test_tflm_streaming.ADDITIONS},
        runs=_RUNS,
        told=("case",),
        stream=lambda case: streams.OverlapAdd(case[2]),
    ),
    Row(
        "SignalFilterBankSpectralSubtraction",
        subtraction,
        _UINT32,
        {"clamping": (0, 1), "bits": (0, 10)},
        _ONE,
        exact=True,
        runs=_RUNS,
        told=("clamping", "bits"),
        stream=lambda clamping, bits: streams.SpectralSubtraction(
            _subtraction_options(clamping, bits)
        ),
    ),
    Row(
        "CIRCULAR_BUFFER",
        build_circular_buffer,
        ("quantized int8",),
        {"slots": test_tflm_streaming.SLOTS},
        _ONE,
        exact=True,
        runs=_RUNS,
        told=("slots",),
        stream=lambda slots: streams.CircularBuffer(
            np.full((1, slots[0], 2, 3), test_tflm_streaming.SCALE["zero_point"], np.int8)
        ),
    ),
)
