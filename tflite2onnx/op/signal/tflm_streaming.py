"""What the front end of microcontrollers keeps of a stream of sound, from one run to the next.

TFLite Micro has buffers inside of these operators. Here each is a state (see `lift_kernel_memory`)
that holds what later runs read of it, always as many elements: before that much has been heard,
they are 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np

from tflite2onnx.op.base import Builder, Category, OperatorError, Value, View
from tflite2onnx.op.common.checks import check_element_count, expect, expect_type
from tflite2onnx.op.common.runtime_shapes import BEHIND
from tflite2onnx.op.signal.frontend_steps import Subtraction
from tflite2onnx.op.signal.tflm_base import Signal, emit_minimum
from tflite2onnx.op.traits import HasInternalState
from tflite2onnx.quantize import same_scale
from tflite2onnx.tensor import Array, DType, Shape, Tensor

_MOST = 1 << 20  # samples
_ADDITIONS = 256
# Coefficients are less than this, so that sums of two products have no more than 63 bits.
_MOST_COEFFICIENT = 1 << 30
# How many inputs CIRCULAR_BUFFER keeps where the rest of the model is run every time, and their
# size where it may be.
_EVERY_TIME, _NOW_AND_THEN = (5, 13, 25), (2, 96)


class _Stream(Signal):
    """What all have in common: samples along the last axis, of several streams at once."""

    returns_tuple = True

    def outputs(self, count: int) -> tuple[Tensor, ...]:
        """Return the outputs, without the next states; OperatorError if the file has others."""
        made = self.op.outputs[:count]
        if len(made) != count:
            raise OperatorError(f"{len(made)} outputs, not {count}")
        return made

    def samples(self, *types: DType) -> tuple[Shape, int]:
        """Return the leading sizes of the input, and the last one."""
        x = self.input(0)
        check_element_count(x.elements)
        expect_type(x, types)
        if not x.rank or not x.elements:
            raise OperatorError(f"{x.name} is {list(x.shape)}")
        return x.shape[:-1], x.shape[-1]


class SignalDelay(_Stream, HasInternalState):
    """SignalDelay: what was heard so many samples before."""

    codes = ("SignalDelay",)

    @property
    def _length(self) -> int:
        return self.option("delay_length", 0, _MOST)

    def check(self) -> None:
        _ = self._length, self.samples(DType.INT16)
        expect(self.output, self.input(0).shape, DType.INT16)

    def internal_state(self) -> Sequence[Tensor]:
        lead, _ = self.samples(DType.INT16)
        shape = *lead, self._length
        return [self.state_tensor("delayed", shape, DType.INT16)] if self._length else []

    def emit(self, g: Builder, ys: tuple[View, ...], x: View, *memory: View) -> tuple[Value, ...]:
        if not memory:
            return (x.value,)
        return _split(g, g.Concat(*memory, x, axis=-1), x.shape[-1])


class SignalFramer(_Stream, HasInternalState):
    """SignalFramer: frames that overlap, of a stream; and whether all of them are whole yet.

    (What the kernel says of frames that are not it has written into no frame at all; here these
    begin with 0.)
    """

    codes = ("SignalFramer",)

    @property
    def _frame(self) -> tuple[int, int]:
        """The size of a frame, and how far it is to the next."""
        return self.option("frame_size", 1, _MOST), self.option("frame_step", 1, _MOST)

    @property
    def _missing_steps(self) -> int:
        """How many steps it takes until there is a frame, without the one that completes it.

        If zeros come first that is none: they fill up the first frame.
        """
        size, step = self._frame
        return 0 if self.options.get("prefill", 0) else -(-size // step) - 1

    @property
    def _kept_samples(self) -> int:
        """How many samples are kept: a frame is read as soon as there are steps enough for it.

        So it ends before the last sample, unless zeros have come first.
        """
        size, step = self._frame
        return max(self._missing_steps * step or size - step, 0)

    def check(self) -> None:
        lead, count = self.samples(DType.INT16)
        size, step = self._frame
        if count % step or (size < step and self.options.get("prefill", 0)):
            raise OperatorError(f"frames of {size} samples, {step} apart, of {count} samples")
        check_element_count(size * (count // step) * prod(lead))
        frames, whole = self.outputs(2)
        expect(frames, (*lead, count // step, size), DType.INT16)
        expect(whole, (1,) * whole.rank, DType.BOOL)

    def internal_state(self) -> Sequence[Tensor]:
        lead, _ = self.samples(DType.INT16)
        past = (
            [self.state_tensor("past", (*lead, self._kept_samples), DType.INT16)]
            if self._kept_samples
            else []
        )
        return (
            [*past, self.state_tensor("steps", (1,), DType.INT32)] if self._missing_steps else past
        )

    def emit(self, g: Builder, ys: tuple[View, ...], x: View, *memory: View) -> tuple[Value, ...]:
        size, step = self._frame
        count = x.shape[-1] // step
        line = g.Concat(memory[0], x, axis=-1) if memory else x.value
        places = step * np.arange(count)[:, None] + np.arange(size)
        made = [g.Gather(line, places, axis=x.rank - 1)]
        after = list(_split(g, line, x.shape[-1])[1:]) if memory else []
        if not self._missing_steps:
            return (*made, _constant_true(g, ys[1]), *after)
        steps, most = memory[1], g.constant(np.array([self._missing_steps], np.int32))
        whole = g.GreaterOrEqual(steps, most)
        more = g.Add(steps, g.constant(np.array([count], np.int32)))
        heard = g.in_compute_type("Min", DType.INT32, more, most)
        return (*made, g.reshape(whole, ys[1].shape), *after, heard)


class SignalStacker(_Stream, HasInternalState):
    """SignalStacker: the last frames one behind the other, every so many runs; and if it is one.

    The first frame stands for those before it. (In other runs the kernel writes no frames; here
    the last ones are made in any case.)
    """

    codes = ("SignalStacker",)

    @property
    def _sizes(self) -> tuple[int, int, int, int]:
        """The channels of a frame, all frames, those behind the middle one, and the step."""
        channels = self.option("num_channels", 1, _MOST)
        left = self.option("stacker_left_context", 0, _MOST)
        right = self.option("stacker_right_context", 0, _MOST)
        frames = left + right + 1
        return channels, frames, right, self.option("stacker_step", 1, frames)

    def check(self) -> None:
        channels, frames, _, _ = self._sizes
        check_element_count(channels * frames)
        stack, whole = self.outputs(2)
        expect(self.input(0), (channels,), DType.INT16)
        expect(stack, (channels * frames,), DType.INT16)
        expect(whole, (1,) * whole.rank, DType.BOOL)

    def internal_state(self) -> Sequence[Tensor]:
        """Return the frames before, and after how many there is a stack: 0 before the first."""
        channels, frames, _, _ = self._sizes
        if frames == 1:
            return []
        past = self.state_tensor("past", (channels * (frames - 1),), DType.INT16)
        return [past, self.state_tensor("missing", (1,), DType.INT32)]

    def emit(self, g: Builder, ys: tuple[View, ...], x: View, *memory: View) -> tuple[Value, ...]:
        channels, frames, right, step = self._sizes
        if not memory:
            return x.value, _constant_true(g, ys[1])
        past, missing = memory
        none, one, behind, again = (
            g.constant(np.array([n], np.int32)) for n in (0, 1, right + 1, step)
        )
        first = g.Equal(missing, none)
        places = np.arange(channels * (frames - 1)) % channels
        before = g.with_compute_type(
            "Where",
            DType.INT16,
            lambda new, old: g.Where(first, new, old),
            g.Gather(x, places, axis=0),
            past,
        )
        stack = g.Concat(before, x, axis=0)
        left = g.Sub(g.Where(first, behind, missing), one)
        whole = g.Equal(left, none)
        after = _split(g, stack, channels)[1]
        return stack, g.reshape(whole, ys[1].shape), after, g.Where(whole, again, left)


class SignalOverlapAdd(_Stream, HasInternalState):
    """SignalOverlapAdd: frames that overlap, added up to a stream; int16 is saturated."""

    codes = ("SignalOverlapAdd",)

    @property
    def _step(self) -> int:
        return self.option("frame_step", 1, _MOST)

    def check(self) -> None:
        x, step = self.input(0), self._step
        self.samples(DType.FLOAT32, DType.INT16)
        if x.rank < 2 or x.shape[-1] < step:
            raise OperatorError(f"frames {list(x.shape)}, {step} apart")
        *lead, count, size = x.shape
        if min(count, -(-size // step)) > _ADDITIONS:
            raise OperatorError(f"it takes more than {_ADDITIONS} additions, one after another")
        expect(self.output, (*lead, count * step), x.dtype)

    def internal_state(self) -> Sequence[Tensor]:
        *lead, _, size = self.input(0).shape
        shape = *lead, size - self._step
        return [self.state_tensor("past", shape, self.input(0).dtype)] if size > self._step else []

    def emit(self, g: Builder, ys: tuple[View, ...], x: View, *memory: View) -> tuple[Value, ...]:
        """Add up in the kernel's sequence, which saturation makes a difference to.

        Either frame after frame, or the last step of all frames, then the one before it, ...: each
        step of the stream is added to in the same sequence.
        """
        if not memory:
            return (g.reshape(x, ys[0].shape),)
        *_, count, size = x.shape
        step, streams = self._step, x.tensor.elements // (count * size)
        steps = -(-size // step)
        total = count + steps - 1
        wide = DType.INT32 if x.dtype is DType.INT16 else x.dtype
        frames = _pad_samples(g, g.recast(x, x.dtype, wide), (streams * count, size), steps * step)
        parts = g.reshape(frames, (streams, count, steps, step))
        past = g.recast(memory[0], x.dtype, wide)
        line = _pad_samples(g, past, (streams, size - step), total * step)
        line = g.reshape(line, (streams, total, step))
        by_frame = count <= steps
        axis, length = (1, steps) if by_frame else (2, count)
        for place in range(count) if by_frame else reversed(range(steps)):
            part = g.Gather(parts, g.scalar(place, DType.INT64), axis=axis)
            part = g.Pad(part, g.ints([0, place, 0, 0, total - length - place, 0]))
            line = self._saturate_int16(g, g.Add(line, part), wide)
        line = g.reshape(g.recast(line, wide, x.dtype), (streams, total * step))
        made, rest = _split(g, line, count * step)
        after = g.Slice(rest, g.ints([0]), g.ints([size - step]), g.ints([1]))
        return g.reshape(made, ys[0].shape), g.reshape(after, ys[1].shape)

    @staticmethod
    def _saturate_int16(g: Builder, x: Value, dtype: DType) -> Value:
        if dtype is DType.FLOAT32:
            return x
        return g.Clip(x, *(g.scalar(n, dtype) for n in (-(1 << 15), (1 << 15) - 1)))


class SignalFilterBankSpectralSubtraction(_Stream, HasInternalState):
    """SignalFilterBankSpectralSubtraction: energies without the noise that is always there.

    The noise is a mean that lasts, with one rate for even channels and one for odd ones.
    """

    codes = ("SignalFilterBankSpectralSubtraction",)

    def check(self) -> None:
        size = self.vector(0, DType.UINT32)
        for made in self.outputs(2):
            expect(made, (size,), DType.UINT32)
        self.option("num_channels", size, size)
        self.option("smoothing_bits")
        self.option("spectral_subtraction_bits")
        self._coefficient("min_signal_remaining")
        _ = self._rates("smoothing"), self._rates("one_minus_smoothing")

    def _coefficient(self, name: str) -> int:
        return self.option(name, 0, _MOST_COEFFICIENT)

    def _rates(self, name: str) -> Array:
        """Return the coefficient of each channel."""
        even, odd = self._coefficient(name), self._coefficient(f"alternate_{name}")
        return np.where(np.arange(self.input(0).elements) % 2, odd, even).astype(np.int64)

    def internal_state(self) -> Sequence[Tensor]:
        return [self.state_tensor("noise", self.input(0).shape, DType.UINT32)]

    def emit(
        self, g: Builder, ys: tuple[View, ...], x: View, noise: View
    ) -> tuple[Value, Value, Value]:
        steps = Subtraction(
            g,
            self.option("smoothing_bits"),
            1 << self.option("spectral_subtraction_bits"),
            self._rates("smoothing"),
            self._rates("one_minus_smoothing"),
            self._coefficient("min_signal_remaining"),
        )
        energy, before = (g.cast(v, DType.INT64) for v in (x, noise))
        signal = steps.signal(energy)
        estimate = steps.estimate(g, steps.weigh_signal(signal), before)
        made = g.cast(steps.subtract_estimate(energy, signal, estimate), DType.UINT32)
        after = emit_minimum(g, estimate, signal) if self.options.get("clamping", 0) else estimate
        after = g.cast(after, DType.UINT32)
        return made, after, after


class CircularBuffer(HasInternalState):
    """CIRCULAR_BUFFER: the last inputs, one behind the other.

    But for every so many runs the kernel ends the run when it has taken its input.
    """

    codes = ("CIRCULAR_BUFFER",)
    custom = True
    category = Category.ATTRIBUTE
    tflite = "... -> ..."
    returns_tuple = True
    moves_only = True

    @property
    def _cycles(self) -> int:
        """How often the model is run until what comes behind the operator is run once.

        Old files do not say: the kernel knows the two models that there were by shapes.

        Raises:
            OperatorError: the kernel would have to count the operators before this one, or runs
                beyond 32 bits.
        """
        number = int(self.options.get("cycles_max", 0))
        if number >= 1 << 31:
            raise OperatorError(f"its cycles_max is {number}")
        if number > 0:
            return number
        if self.output.shape[1] in _EVERY_TIME:
            return 1
        if self.output.shape[2:] == _NOW_AND_THEN:
            raise OperatorError(
                "it does not say after how many runs the model goes on behind it (cycles_max)"
            )
        return 2

    @property
    def may_end_run(self) -> bool:
        return self._cycles > 1

    def check(self) -> None:
        x, y = self.input(0), self.output
        if x.rank != 4 or y.rank != 4 or x.shape[:2] != (1, 1) or not y.elements:
            raise OperatorError(f"{list(x.shape)} cannot become {list(y.shape)}")
        check_element_count(y.elements)
        expect(x, x.shape, DType.INT8)
        expect(y, (1, y.shape[1], *x.shape[2:]), DType.INT8)
        if not same_scale(x, y):
            raise OperatorError("its input and its output have different scales")
        _ = self._cycles

    def internal_state(self) -> Sequence[Tensor]:
        """Return the inputs, the first of which is read no more, and the runs that are left."""
        kept = [replace(self.output, name=f"{self.output.name}/past")]
        if self.may_end_run:
            runs = np.array([self._cycles], np.int32)
            kept.append(Tensor(f"{self.output.name}/runs", (1,), DType.INT32, runs))
        return kept

    def emit(
        self, g: Builder, ys: tuple[View, ...], x: View, past: View, *runs: View
    ) -> tuple[Value, ...]:
        axis = x.axis(1)
        line = x.value
        if past.tensor.shape[1] > 1:
            kept = g.Slice(past, g.ints([1]), g.ints([BEHIND]), g.ints([axis]))
            line = g.Concat(kept, x, axis=axis)
        if not runs:
            return line, line
        none, one, again = (g.constant(np.array([n], np.int32)) for n in (0, 1, self._cycles))
        left = g.Sub(*runs, one)
        goes_on = g.Equal(left, none)
        return line, goes_on, line, g.Where(goes_on, again, left)


def _split(g: Builder, line: Value, size: int) -> tuple[Value, Value]:
    """Return so many samples, along the last axis, and those behind."""
    at, last = g.ints([size]), g.ints([-1])
    return g.Slice(line, g.ints([0]), at, last), g.Slice(line, at, g.ints([BEHIND]), last)


def _pad_samples(g: Builder, x: Value, shape: tuple[int, int], size: int) -> Value:
    """Return samples [streams, samples] with zeros behind."""
    missing = size - shape[1]
    flat = g.reshape(x, shape)
    return g.Pad(flat, g.ints([0, 0, 0, missing])) if missing else flat


def _constant_true(g: Builder, y: View) -> Value:
    return g.constant(np.ones(y.shape, np.bool_))
