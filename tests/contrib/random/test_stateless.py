"""TensorFlow's stateless random numbers: numpy models, and numbers that TensorFlow 2.21 drew."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.references import check_reference
from tests.support import Build, run_onnx
from tests.support.flex import flex_options
from tflite2onnx.convert import convert
from tflite2onnx.errors import ConversionError

if TYPE_CHECKING:
    from tests.support.runtimes import Array

SEED = np.array([7, -3], np.int32)
FLOATS = ("float16", "float32", "float64")
NAMES = {
    "uniform": "StatelessRandomUniformV2",
    "normal": "StatelessRandomNormalV2",
    "truncated": "StatelessTruncatedNormalV2",
    "range": "StatelessRandomUniformIntV2",
    "all": "StatelessRandomUniformFullIntV2",
}
BOUNDS = (-1_000_000_000, 2_000_000_000)
# What TensorFlow draws for the seed, on an x86-64 processor.
DRAWN = {
    "uniform float16": [0.5888671875, 0.740234375, 0.4453125, 0.67578125, 0.5302734375],
    "uniform float32": [0.4346422, 0.06527591, 0.74761295, 0.14876413, 0.5897864],
    "uniform float64": [0.47713778180121613, 0.9809041063278245, 0.7182915943104444],
    "normal float16": [0.5146484375, 1.18359375, 0.61376953125, 0.453125, 0.931640625],
    "normal float32": [0.51473767, 1.1838536, 0.61355257, 0.45309275, 0.93150365],
    "normal float64": [-0.1456107780640622, 1.2077654819729078, 0.36099545311012377],
    "truncated float16": [0.5146484375, 1.18359375, 0.61376953125, 0.453125, 1.0126953125],
    "truncated float32": [0.51473767, 1.1838536, 0.61355257, 0.45309275, 1.0124135],
    "truncated float64": [-0.1456107780640622, 1.2077654819729078, -0.28848604561432045],
    "range int32": [1125963867, -26373898, -305862712, 1165508788, -30362593],
    "range int64": [1747924059, 354734536, 1551946271, 1467733058, 354384872],
    "all int32": [2125963867, 973626102, 694137288, -2129458508, 969637407],
    "all int64": [4181692268747924059, -9145954649354817080, 6028316063551946271],
    "all uint32": [2125963867, 973626102, 694137288, 2165508788, 969637407],
    "all uint64": [4181692268747924059, 9300789424354734536, 6028316063551946271],
}


def encrypt(counter: list[int], key: list[int]) -> list[int]:
    """Return a block of Philox-4x32 with 10 rounds."""
    low = (1 << 32) - 1
    (a, b, c, d), (k, m) = counter, key
    for _ in range(10):
        first, second = a * 0xD2511F53, c * 0xCD9E8D57
        a, b, c, d = (second >> 32) ^ b ^ k, second & low, (first >> 32) ^ d ^ m, first & low
        k, m = (k + 0x9E3779B9) & low, (m + 0xBB67AE85) & low
    return [a, b, c, d]


def split(number: Any) -> list[int]:
    return [int(number) % 2**32, int(number) % 2**64 >> 32]


def encrypt_seed(seed: Array) -> list[Array]:
    """Return the key and the counter of a seed."""
    a, b, c, d = encrypt([*split(seed[0]), *split(seed[1])], [0x3EC8F720, 0x02461E29])
    return [np.array([a + (b << 32)], np.uint64), np.array([0, c + (d << 32)], np.uint64)]


def draw(kind: str, dtype: str, count: int, key: Array, counter: Array, *bounds: Any) -> Array:
    """Return random numbers, drawn one after another."""
    start = int(counter[0]) + (int(counter[1]) << 64)
    made: list[Any] = []
    per_block = 2 if dtype[-2:] == "64" else 4
    while len(made) < count:
        block = len(made) // per_block * (64 * per_block if kind == "truncated" else 1)
        found: list[Any] = []
        while len(found) < per_block:
            at = (start + block) % 2**128
            words = encrypt([*split(at), *split(at >> 64)], split(key[0]))
            found += make_numbers(kind, dtype, words, *bounds)
            block += 1
        made += found[:per_block]
    return np.array(made[:count], dtype)


def make_numbers(kind: str, dtype: str, words: list[int], *bounds: Any) -> list[Any]:
    """Return the numbers of a block."""
    if dtype[-2:] == "64" and kind in ("all", "range"):
        words = [words[0] + (words[1] << 32), words[2] + (words[3] << 32)]
    if kind == "all":
        return [np.array([word], f"u{dtype.lstrip('u')}").view(dtype)[0] for word in words]
    if kind == "range":
        low, high = (int(bound) for bound in bounds)
        return [low + word % (high - low) for word in words]
    if dtype == "float64":
        uniform = [(words[i] % 2**20 * 2**32 + words[i + 1]) / 2**52 for i in (0, 2)]
    elif dtype == "float16" and kind == "uniform":
        uniform = [word % 2**10 / 2**10 for word in words]
    else:
        uniform = [word % 2**23 / 2**23 for word in words]
    if kind == "uniform":
        return uniform
    normal = []
    for i in range(0, len(uniform), 2):
        first, second = uniform[i : i + 2]
        radius = np.sqrt(-2 * np.log(max(first, 1e-7)))
        normal += [radius * np.sin(2 * np.pi * second), radius * np.cos(2 * np.pi * second)]
    return [x for x in normal if kind == "normal" or abs(x) < 2]


def build_draw(
    kind: str, dtype: str, seed: Array | None, shape: list[int] | None, *bounds: int, **how: Any
) -> Build:
    """Return a model of a draw; a seed and a shape that are None are inputs."""
    m = Build()
    place = m.input([2], dtype="int32") if seed is None else m.constant(seed)
    sizes = m.input([2], dtype="int32") if shape is None else m.constant(np.array(shape, np.int32))
    limits = [m.constant(np.array(bound, dtype)) for bound in bounds]
    declared = [abs(n) for n in shape or (1, 1)]
    made, options = m.tensor(declared, dtype=dtype), flex_options("Stateless")
    if how.get("old"):
        name = NAMES[kind].removesuffix("V2")
        m.output(*m.custom(f"Flex{name}", [sizes, place, *limits], [made], options))
        return m
    outputs = [m.tensor([n], dtype="uint64") for n in (1, 2)]
    if how.get("named"):
        outputs.append(m.tensor([], dtype="int32"))
    code = f"FlexStatelessRandomGetKeyCounter{'Alg' if how.get('named') else ''}"
    key, counter, *number = m.custom(code, [place], outputs, options)
    if how.get("asked"):
        none = m.tensor([], dtype="int32")
        number = m.custom("FlexStatelessRandomGetAlg", [], [none], options)
    algorithm = number[0] if number else m.constant(np.array(3, np.int32))
    operands = [sizes, key, counter, algorithm, *limits]
    m.output(*m.custom(f"Flex{NAMES[kind]}", operands, [made], options))
    return m


def tolerance_of(dtype: str) -> float:
    return {"float16": 1e-3, "float32": 1e-6, "float64": 1e-13}.get(dtype, 0)


def test_philox_of_the_tests_gives_published_blocks() -> None:
    """The known answers of Random123."""
    most = 2**32 - 1
    digits = [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344]
    assert encrypt([0] * 4, [0] * 2) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert encrypt([most] * 4, [most] * 2) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]
    assert encrypt(digits, [0xA4093822, 0x299F31D0]) == [
        0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1,
    ]  # fmt: skip


@pytest.mark.parametrize("case", DRAWN)
def test_numbers_equal_those_that_tensorflow_drew(case: str) -> None:
    """The seed is constant or an input; old operators take the seed."""
    kind, dtype = case.split()
    bounds = BOUNDS if kind == "range" else ()
    want = np.array(DRAWN[case], dtype)
    bound = 0 if kind not in ("normal", "truncated") else tolerance_of(dtype)
    shape = [want.size]
    for how in ({}, {"old": True}):
        m = build_draw(kind, dtype, None, shape, *bounds, **how)
        check_reference(m, [SEED], [want], tolerance=bound)
        result = convert(build_draw(kind, dtype, SEED, shape, *bounds, **how).bytes())
        (have,) = run_onnx(result.model, {})
        np.testing.assert_allclose(have, want, rtol=bound, atol=bound)
    (model,) = encrypt_seed(SEED)[:1]
    assert model.tolist() == [13399541416664089238]
    drawn = draw(kind, dtype, want.size, *encrypt_seed(SEED), *bounds)
    np.testing.assert_allclose(drawn, want, rtol=bound, atol=bound)


@pytest.mark.parametrize("how", [{}, {"named": True}, {"asked": True}], ids=str)
@pytest.mark.parametrize("case", DRAWN)
def test_numbers_of_any_seed_and_shape_equal_the_model(case: str, how: dict[str, bool]) -> None:
    kind, dtype = case.split()
    bounds = BOUNDS if kind == "range" else ()
    m = build_draw(kind, dtype, None, None, *bounds, **how)
    for seed, sizes in (((0, 0), (7, 13)), ((-5, 2**31 - 1), (0, 3)), ((1, 2), (1, 1))):
        given = np.array(seed, np.int32)
        want = draw(kind, dtype, sizes[0] * sizes[1], *encrypt_seed(given), *bounds)
        inputs = [given, np.array(sizes, np.int32)]
        check_reference(m, inputs, [want.reshape(sizes)], tolerance=tolerance_of(dtype))


def test_computed_bounds_and_an_empty_range() -> None:
    """An empty range must not end the program."""
    m = Build()
    operands = [m.constant(np.array([5], np.int32)), m.input([1], dtype="uint64"),
                m.input([2], dtype="uint64"), m.constant(np.array(1, np.int32)),
                m.input([], dtype="int32"), m.input([], dtype="int32")]  # fmt: skip
    made, options = m.tensor([5], dtype="int32"), flex_options("StatelessRandomUniformIntV2")
    m.output(*m.custom("FlexStatelessRandomUniformIntV2", operands, [made], options))
    key, counter = encrypt_seed(SEED)
    for low, high in ((-7, 3), (4, 4)):
        bounds = [np.array(n, np.int32) for n in (low, high)]
        want = draw("range", "int32", 5, key, counter, low, max(high, low + 1))
        check_reference(m, [key, counter, *bounds], [want], tolerance=0)


def test_counter_carries_and_wraps_around() -> None:
    m = Build()
    key, counter = m.input([1], dtype="uint64"), m.input([2], dtype="uint64")
    constants = [m.constant(np.array(n, np.int32)) for n in ([9], 1)]
    made = m.tensor([9], dtype="float32")
    operands, name = [constants[0], key, counter, constants[1]], "FlexStatelessRandomUniformV2"
    m.output(*m.custom(name, operands, [made], flex_options("StatelessRandomUniformV2")))
    inputs = [np.array([5], np.uint64), np.array([2**64 - 2, 2**64 - 1], np.uint64)]
    want = draw("uniform", "float32", 9, *inputs)
    # TensorFlow's numbers
    np.testing.assert_array_equal(want[[0, 8]], np.array([0.47443652, 0.18286479], np.float32))
    check_reference(m, inputs, [want], tolerance=0)


@pytest.mark.parametrize("low", [5, 6])
def test_empty_ranges(low: int) -> None:
    """Constant bounds must be in order; TensorFlow's kernel fails for computed ones."""
    with pytest.raises(ConversionError, match="minval must be less than its maxval, got"):
        convert(build_draw("range", "int32", None, [3], low, 5).bytes())


def test_refuses_another_generator_and_negative_sizes() -> None:
    m = build_draw("uniform", "float32", None, [-3])
    with pytest.raises(ConversionError, match="its shape must be non-negative sizes, got"):
        convert(m.bytes())
    m = Build()
    key, counter = m.input([1], dtype="uint64"), m.input([2], dtype="uint64")
    sizes, algorithm = (m.constant(np.array(n, np.int32)) for n in ([9], 2))
    operands, made = [sizes, key, counter, algorithm], m.tensor([9], dtype="float32")
    m.output(*m.custom("FlexStatelessRandomUniformV2", operands, [made], flex_options("Stateless")))
    with pytest.raises(
        ConversionError, match=r"its algorithm must be Philox \(1\) or the kernel's"
    ):
        convert(m.bytes())
