"""The operators of TFLite Micro's audio front end that keep state between runs.

In TFLite Micro these operators contain buffers. Here each buffer is a state of the model (see
`lift_kernel_memory`) of a static size, with the elements that later runs read. Its initial value is
0.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import ClassVar

import numpy as np

from tflite2onnx.contrib.signal.tflm_base import SHIFT, Signal, Subtraction
from tflite2onnx.operators import (
    Array,
    Builder,
    DType,
    HasInternalState,
    Moves,
    OperatorError,
    OutputShape,
    Tensor,
    Value,
    View,
    check_element_count,
    expect,
    expect_input_count,
    same_scale,
)
from tflite2onnx.sizes import AXIS_END

_MOST = 1 << 20  # the largest number of samples
_ADDITIONS = 256
# The limit of coefficients: sums of two products must fit into 63 bits.
_MOST_COEFFICIENT = 1 << 30
# For files without the option cycles_max: the lengths of CIRCULAR_BUFFER's output with which the
# kernel runs the rest of the model in every run. For one input shape the kernel counts operators to
# tell two models apart.
_EVERY_RUN_LENGTHS, _AMBIGUOUS_SHAPE = (5, 13, 25), (2, 96)


class _Stream(Signal, HasInternalState):
    """Base class: samples along the last axis, of one or several streams."""

    returns_tuple = True

    def internal_state(self) -> Sequence[Tensor]:
        expect_input_count(self, 1)  # `emit` would read a second input as memory
        return self.list_states()

    def list_states(self) -> Sequence[Tensor]:
        """Return the result of `internal_state`."""
        raise NotImplementedError


class SignalDelay(_Stream):
    """SignalDelay: the input, delayed by a number of samples."""

    codes = ("SignalDelay",)
    operands = "int16 [... samples], ... -> int16 [... samples], ..."
    limits: ClassVar = {"delay_length": (0, _MOST)}

    def list_states(self) -> Sequence[Tensor]:
        length = self.read_option("delay_length")
        shape = *self.input(0).shape[:-1], length
        return [self.make_state("delayed", shape, DType.INT16)] if length else []

    def emit(self, g: Builder, ys: tuple[View, ...], x: View, *memory: View) -> tuple[Value, ...]:
        if not memory:
            return (x.value,)
        return _split_samples(g, g.Concat(*memory, x, axis=-1), x.shape[-1])


class SignalFramer(_Stream):
    """SignalFramer: overlapping frames of a stream, and whether all of them are complete.

    (For incomplete frames the kernel leaves the output buffer uninitialised. Here these frames
    start with 0.)
    """

    codes = ("SignalFramer",)
    operands = "int16 [... samples], ... -> int16, bool [1*], ..."

    @property
    def _frame(self) -> tuple[int, int]:
        """The size of a frame, and the distance to the next frame."""
        return self.read_option("frame_size", 1, _MOST), self.read_option("frame_step", 1, _MOST)

    @property
    def _missing_steps(self) -> int:
        """The number of steps before the step that completes the first frame.

        With prefill it is 0: zeros fill up the first frame.
        """
        size, step = self._frame
        return 0 if self.options.get("prefill", 0) else -(-size // step) - 1

    @property
    def _kept_samples(self) -> int:
        """The number of samples that the state keeps.

        A frame is read as soon as there are enough whole steps. So the frame ends before the last
        sample, except with prefill.
        """
        size, step = self._frame
        return max(self._missing_steps * step or size - step, 0)

    def infer_outputs(self) -> Sequence[OutputShape]:
        (*lead, count), (size, step) = self.input(0).shape, self._frame
        return [(*lead, count // step, size), self.op.outputs[1].shape]

    def check(self) -> None:
        super().check()
        (*lead, count), (size, step) = self.input(0).shape, self._frame
        if count % step or (size < step and self.options.get("prefill", 0)):
            raise OperatorError(
                f"the number of samples must be a multiple of frame_step, and with prefill "
                f"frame_size must be at least frame_step, got {count} samples, {step} and {size}"
            )
        check_element_count(size * (count // step) * prod(lead))

    def list_states(self) -> Sequence[Tensor]:
        shape = *self.input(0).shape[:-1], self._kept_samples
        past = [self.make_state("past", shape, DType.INT16)] if self._kept_samples else []
        steps = [self.make_state("steps", (1,), DType.INT32)] if self._missing_steps else []
        return [*past, *steps]

    def emit(self, g: Builder, ys: tuple[View, ...], x: View, *memory: View) -> tuple[Value, ...]:
        size, step = self._frame
        count = x.shape[-1] // step
        samples = g.Concat(memory[0], x, axis=-1) if memory else x.value
        places = step * np.arange(count)[:, None] + np.arange(size)
        frames = [g.Gather(samples, places, axis=x.rank - 1)]
        next_state = list(_split_samples(g, samples, x.shape[-1])[1:]) if memory else []
        if not self._missing_steps:
            return (*frames, _make_true(g, ys[1]), *next_state)
        steps, required = memory[1], g.constant(np.array([self._missing_steps], np.int32))
        complete = g.GreaterOrEqual(steps, required)
        total = g.Add(steps, g.constant(np.array([count], np.int32)))
        next_steps = g.add_with_casts("Min", DType.INT32, total, required)
        return (*frames, g.reshape(complete, ys[1].shape), *next_state, next_steps)


class SignalStacker(_Stream):
    """SignalStacker: the last frames concatenated, and whether the run outputs a stack.

    A stack is output every `stacker_step` runs. The first frame replaces the missing frames before
    it. (In other runs the kernel does not write its output. Here the output is always the last
    frames.)
    """

    codes = ("SignalStacker",)
    operands = "int16 [channels], ... -> int16, bool [1*], ..."

    @property
    def _sizes(self) -> tuple[int, int, int, int]:
        """The numbers of channels, of frames in a stack and after its middle, and the step."""
        channels = self.read_option("num_channels", 1, _MOST)
        left = self.read_option("stacker_left_context", 0, _MOST)
        right = self.read_option("stacker_right_context", 0, _MOST)
        frames = left + right + 1
        return channels, frames, right, self.read_option("stacker_step", 1, frames)

    def infer_outputs(self) -> Sequence[OutputShape]:
        channels, frames, _, _ = self._sizes
        return [(channels * frames,), self.op.outputs[1].shape]

    def check(self) -> None:
        super().check()
        channels, frames, _, _ = self._sizes
        check_element_count(channels * frames)
        expect(self.input(0), (channels,), DType.INT16)

    def list_states(self) -> Sequence[Tensor]:
        """Return the previous frames, and the runs until the next stack: 0 in the first run."""
        channels, frames, _, _ = self._sizes
        if frames == 1:
            return []
        past = self.make_state("past", (channels * (frames - 1),), DType.INT16)
        return [past, self.make_state("missing", (1,), DType.INT32)]

    def emit(self, g: Builder, ys: tuple[View, ...], x: View, *memory: View) -> tuple[Value, ...]:
        channels, frames, right, step = self._sizes
        if frames == 1:
            return x.value, _make_true(g, ys[1])
        past, count = memory
        zero, one, first_count, period = (
            g.constant(np.array([n], np.int32)) for n in (0, 1, right + 1, step)
        )
        first = g.Equal(count, zero)
        places = np.arange(channels * (frames - 1)) % channels
        previous = g.where(first, g.Gather(x, places, axis=0), past, DType.INT16)
        stack = g.Concat(previous, x, axis=0)
        remaining = g.Sub(g.Where(first, first_count, count), one)
        complete = g.Equal(remaining, zero)
        next_past = _split_samples(g, stack, channels)[1]
        flag = g.reshape(complete, ys[1].shape)
        return stack, flag, next_past, g.Where(complete, period, remaining)


class SignalOverlapAdd(_Stream):
    """SignalOverlapAdd: the sum of overlapping frames as a stream; int16 saturates."""

    codes = ("SignalOverlapAdd",)
    operands = "T:float32|int16 [... frames samples], ... -> T, ..."

    @property
    def _step(self) -> int:
        return self.read_option("frame_step", 1, _MOST)

    def infer_outputs(self) -> Sequence[OutputShape]:
        *lead, count, _ = self.input(0).shape
        return [(*lead, count * self._step)]

    def check(self) -> None:
        super().check()
        (*_, count, size), step = self.input(0).shape, self._step
        if size < step:
            raise OperatorError(f"frames must have frame_step samples or more, {step}, got {size}")
        if min(count, -(-size // step)) > _ADDITIONS:
            raise OperatorError(
                f"the number of frames, or of steps in a frame, must be at most {_ADDITIONS}, got "
                f"{count} and {-(-size // step)}"
            )

    def list_states(self) -> Sequence[Tensor]:
        *lead, _, size = self.input(0).shape
        shape = *lead, size - self._step
        return [self.make_state("past", shape, self.input(0).dtype)] if size > self._step else []

    def emit(self, g: Builder, ys: tuple[View, ...], x: View, *memory: View) -> tuple[Value, ...]:
        """Return the stream and the next state.

        Frames are added in the kernel's order, because additions saturate: either frame by frame,
        or the last step of all frames first, then the step before it, and so on. Both forms add to
        each step of the stream in the same order.
        """
        if not memory:
            return (g.reshape(x, ys[0].shape),)
        *_, count, size = x.shape
        step, streams = self._step, x.tensor.elements // (count * size)
        steps = -(-size // step)
        total = count + steps - 1
        dtype = DType.INT32 if x.dtype is DType.INT16 else x.dtype
        frames = _pad_samples(g, g.recast(x, x.dtype, dtype), (streams * count, size), steps * step)
        parts = g.reshape(frames, (streams, count, steps, step))
        past = g.recast(memory[0], x.dtype, dtype)
        stream = _pad_samples(g, past, (streams, size - step), total * step)
        stream = g.reshape(stream, (streams, total, step))
        by_frame = count <= steps
        axis, length = (1, steps) if by_frame else (2, count)
        for index in range(count) if by_frame else reversed(range(steps)):
            part = g.Gather(parts, index, axis=axis)
            part = g.Pad(part, [0, index, 0, 0, total - length - index, 0])
            stream = self._saturate_int16(g, g.Add(stream, part), dtype)
        stream = g.reshape(g.recast(stream, dtype, x.dtype), (streams, total * step))
        output, remainder = _split_samples(g, stream, count * step)
        next_past = g.Slice(remainder, [0], [size - step], [1])
        return g.reshape(output, ys[0].shape), g.reshape(next_past, ys[1].shape)

    @staticmethod
    def _saturate_int16(g: Builder, x: Value, dtype: DType) -> Value:
        if dtype is DType.FLOAT32:
            return x
        return g.Clip(x, *(g.scalar(n, dtype) for n in (-(1 << 15), (1 << 15) - 1)))


class SignalFilterBankSpectralSubtraction(_Stream):
    """SignalFilterBankSpectralSubtraction: energies minus an estimate of the stationary noise.

    The estimate is an exponential moving average, with one rate for even channels and one for odd
    channels.
    """

    codes = ("SignalFilterBankSpectralSubtraction",)
    operands = "uint32 [size], ... -> uint32 [size], uint32 [size], ..."
    limits: ClassVar = {"smoothing_bits": SHIFT, "spectral_subtraction_bits": SHIFT}

    def check(self) -> None:
        super().check()
        size = self.input(0).elements
        self.read_option("num_channels", size, size)
        _ = self._subtraction  # the property raises OperatorError

    @property
    def _subtraction(self) -> Subtraction:
        return Subtraction(
            self.read_option("smoothing_bits"),
            1 << self.read_option("spectral_subtraction_bits"),
            self._make_rates("smoothing"),
            self._make_rates("one_minus_smoothing"),
            self._read_coefficient("min_signal_remaining"),
        )

    def _read_coefficient(self, name: str) -> int:
        return self.read_option(name, 0, _MOST_COEFFICIENT)

    def _make_rates(self, name: str) -> Array:
        even, odd = self._read_coefficient(name), self._read_coefficient(f"alternate_{name}")
        return np.where(np.arange(self.input(0).elements) % 2, odd, even).astype(np.int64)

    def list_states(self) -> Sequence[Tensor]:
        return [self.make_state("noise", self.input(0).shape, DType.UINT32)]

    def emit(
        self, g: Builder, ys: tuple[View, ...], x: View, noise: View
    ) -> tuple[Value, Value, Value]:
        subtraction = self._subtraction
        energy, previous = (g.cast(v, DType.INT64) for v in (x, noise))
        signal = subtraction.scale_signal(g, energy)
        estimate = subtraction.estimate(g, g.Mul(signal, subtraction.rising), previous)
        output = g.cast(subtraction.subtract_estimate(g, energy, signal, estimate), DType.UINT32)
        if self.options.get("clamping", 0):
            estimate = g.min_int64(estimate, signal)
        next_noise = g.cast(estimate, DType.UINT32)
        return output, next_noise, next_noise


class CircularBuffer(HasInternalState):
    """CIRCULAR_BUFFER: the last inputs, concatenated.

    The kernel ends the run after it has stored its input, except in every `cycles_max`-th run.
    """

    codes = ("CIRCULAR_BUFFER",)
    tflite = "... -> ..."
    returns_tuple = True
    quantization = Moves()

    @property
    def _cycles(self) -> int:
        """The number of runs until the later operators of the model run once.

        Files of two old models lack the option. The kernel recognizes these models by their shapes.

        Raises:
            OperatorError: the number depends on earlier operators of the model, or exceeds int32.
        """
        number = int(self.options.get("cycles_max", 0))
        if number >= 1 << 31:
            raise OperatorError(f"its cycles_max must be less than {1 << 31}, got {number}")
        if number > 0:
            return number
        if self.output.shape[1] in _EVERY_RUN_LENGTHS:
            return 1
        if self.output.shape[2:] == _AMBIGUOUS_SHAPE:
            raise OperatorError(
                "it must have cycles_max, the number of runs until the operators after it run"
            )
        return 2

    @property
    def may_end_run(self) -> bool:
        return self._cycles > 1

    def check(self) -> None:
        x, y = self.input(0), self.output
        if x.rank != 4 or y.rank != 4 or x.shape[:2] != (1, 1) or not y.elements:
            raise OperatorError(
                f"input and output must be [1, 1, n, m] and [1, length, n, m], got {list(x.shape)} "
                f"and {list(y.shape)}"
            )
        check_element_count(y.elements)
        expect(x, x.shape, DType.INT8)
        expect(y, (1, y.shape[1], *x.shape[2:]), DType.INT8)
        if not same_scale(x, y):
            raise OperatorError("its input and its output must have the same scale")
        _ = self._cycles

    def internal_state(self) -> Sequence[Tensor]:
        """Return the last inputs without the oldest input, and the number of remaining runs."""
        expect_input_count(self, 1)
        states = [replace(self.output, name=f"{self.output.name}/past")]
        if self.may_end_run:
            runs = np.array([self._cycles], np.int32)
            states.append(Tensor(f"{self.output.name}/runs", (1,), DType.INT32, runs))
        return states

    def emit(
        self, g: Builder, ys: tuple[View, ...], x: View, past: View, *runs: View
    ) -> tuple[Value, ...]:
        axis = x.axis(1)
        buffer = x.value
        if past.tensor.shape[1] > 1:
            recent = g.Slice(past, [1], [AXIS_END], [axis])
            buffer = g.Concat(recent, x, axis=axis)
        if not runs:
            return buffer, buffer
        zero, one, period = (g.constant(np.array([n], np.int32)) for n in (0, 1, self._cycles))
        remaining = g.Sub(*runs, one)
        continues = g.Equal(remaining, zero)
        return buffer, continues, buffer, g.Where(continues, period, remaining)


def _split_samples(g: Builder, x: Value, size: int) -> tuple[Value, Value]:
    """Return the first `size` samples along the last axis, and the samples after them."""
    return g.Slice(x, [0], [size], [-1]), g.Slice(x, [size], [AXIS_END], [-1])


def _pad_samples(g: Builder, x: Value, shape: tuple[int, int], size: int) -> Value:
    """Return samples [streams, samples] padded with zeros at the end."""
    count = size - shape[1]
    flat = g.reshape(x, shape)
    return g.Pad(flat, [0, 0, 0, count]) if count else flat


def _make_true(g: Builder, y: View) -> Value:
    return g.constant(np.ones(y.shape, np.bool_))
