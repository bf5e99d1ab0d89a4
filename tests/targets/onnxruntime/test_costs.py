"""targets/onnxruntime/costs.py: the expected time of nodes."""

from __future__ import annotations

import pytest

from tflite2onnx.targets.onnxruntime.costs import (
    FACTORS,
    Gain,
    Times,
    choose_form,
    estimate_convolution,
    find_kernel,
)
from tflite2onnx.tensor import DType, Tensor


def image(*shape: int) -> Tensor:
    return Tensor("image", shape, DType.FLOAT32)


@pytest.mark.parametrize(
    ("block", "read", "window", "depthwise", "kernel"),
    [
        (16, 16, (1, 1), False, "pointwise"),
        (16, 8, (1, 1), False, "direct"),
        (8, 8, (1, 1), False, "pointwise"),
        (8, 8, (3, 3), False, "window"),
        (16, 12, (3, 3), True, "depthwise"),
        (16, 33, (3, 3), False, "planar"),
        (16, 9, (3, 3), False, "direct"),
        (8, 9, (1, 1), False, "planar"),
        (16, 9, (3, 3), True, "channels"),
    ],
)
def test_kernel_follows_from_channels_and_window(
    block: int, read: int, window: tuple[int, int], kernel: str, *, depthwise: bool
) -> None:
    assert find_kernel(block, read, window, depthwise=depthwise) == kernel


@pytest.mark.parametrize("block", [8, 16])
def test_channels_count_in_whole_blocks(block: int) -> None:
    """Channels are computed in whole blocks."""
    few, many = (
        estimate_convolution(block, (n, 1, 1), (1, 28, 28, n), (1, 28, 28, m))
        for n, m in ((2 * block - 4, 3 * block - 4), (2 * block, 3 * block))
    )
    assert few == many


def test_time_is_the_sum_of_its_terms() -> None:
    """The time has a term for the node, for multiplications, for loaded numbers, and for bytes."""
    x, y = (1, 10, 10, 16), (1, 10, 10, 32)
    factors = FACTORS[16]["window"]
    expected = (
        factors.node
        + factors.products * 0.4608
        + factors.loads * 0.0144
        + factors.megabytes * 0.0192
        + factors.filters * 0.018432
    )
    assert estimate_convolution(16, (16, 3, 3), x, y) == pytest.approx(expected)


def test_depthwise_time_has_no_term_for_loads() -> None:
    x, factors = (1, 10, 10, 20), FACTORS[16]["depthwise"]
    expected = factors.node + factors.products * 0.0288 + factors.megabytes * 0.0256
    expected += factors.filters * 0.001152
    assert estimate_convolution(16, (1, 3, 3), x, x) == pytest.approx(expected)


def test_faster_forms_take_at_most_3_percent_longer_with_avx2() -> None:
    first = Times(100, 100)
    assert not Times(90, 102).explain_loss(first)
    loss = "70.0 us with AVX-512 and 110.0 us with AVX2 are expected in place of 100.0 us"
    assert Times(70, 110).explain_loss(first).startswith(loss)
    assert Times(100, 101).explain_loss(first)


def test_best_form_must_gain_enough() -> None:
    times = {"plain": Times(100, 100), "other": Times(92, 96)}
    assert choose_form(times, "plain") == "other"
    assert "are expected in place of 100.0 us" in choose_form(times, "plain", Gain(part=0.1))
    assert "less than 92.0 us" in choose_form(times, "other")


def test_of_forms_that_are_equally_fast_the_first_is_chosen() -> None:
    """The hashes of words, and so the sequence of a set, change from process to process."""
    names = [f"form {i}" for i in range(20)]
    times = {"plain": Times(100, 100), **dict.fromkeys(names, Times(50, 50))}
    assert choose_form(times, "plain") == "form 0"


def test_processors_have_weights_in_the_mean() -> None:
    assert Times(8, 1).mean == pytest.approx(8**0.5)
    assert Times(8, 1, weight=2).mean == pytest.approx(4)


@pytest.mark.parametrize(("channels", "gains"), [(27, True), (33, False), (50, True)])
def test_channels_near_whole_blocks_are_faster_with_zeros(channels: int, *, gains: bool) -> None:
    """Channels that are no multiple of 4 are outside of the blocks, where none is padded."""
    odd, whole = (
        Times(*(estimate_convolution(block, (n, 3, 3), shape, shape) for block in (16, 8)))
        for n in (channels, -(-channels // 4) * 4)
        for shape in [(1, 28, 28, n)]
    )
    assert (not whole.explain_loss(odd)) == gains
