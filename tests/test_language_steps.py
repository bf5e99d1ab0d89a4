"""Steps of language models: which signatures they run, in which sequence, and on which inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tflite2onnx.graph import Signature as TFLiteSignature
from tflite2onnx.language_steps import (
    BundleSignature,
    count_tokens,
    list_pairs,
    list_step,
    make_bundle_signature,
)
from tflite2onnx.tensor import DType, Tensor
from tflite2onnx.verification.decoding import run_step

if TYPE_CHECKING:
    from collections.abc import Mapping

_SHAPES = {
    "tokens": (1, 2), "args_0": (1, 1), "args_1": (1, 2), "input_pos": (2,),
    "embeddings": (1, 2, 3), "time_step": (), "valid_mask": (1, 2), "mask": (1, 1, 2, 4),
    "kv_cache_k_0": (1, 4),
}  # fmt: skip


def make(
    model: str, key: str, inputs: str, outputs: str, dtype: DType = DType.FLOAT32
) -> BundleSignature:
    """Return a signature with the shapes above."""
    tensors = {name: Tensor(name, _SHAPES.get(name, (1,)), dtype) for name in inputs.split()}
    made = {name: Tensor(name, (1,), dtype) for name in outputs.split()}
    return make_bundle_signature(model, TFLiteSignature(key, 0, tensors, made))


def list_keys(step: list[BundleSignature] | None) -> list[str] | None:
    return None if step is None else [part.key for part in step]


def test_signatures_of_one_length_of_caches_are_compared() -> None:
    """Signatures for several lengths of caches end with the length."""
    keys = ["prefill_8_cache_64", "prefill_8_cache_16", "decode_cache_16", "decode_cache_64"]
    assert [*list_pairs([*keys, "decode_cache_4"])] == [(keys[1], keys[2]), (keys[0], keys[3])]
    assert [*list_pairs(["prefill_3", "decode", "prefill_9"])] == [("prefill_3", "decode")]


def test_other_models_compute_inputs_before_and_caches_after() -> None:
    main = make("m", "prefill", "embeddings kv_cache_k_0 mask", "kv_slice_k_0")
    parts = [
        main,
        make("aux", "mask", "time_step valid_mask tokens", "mask"),
        make("aux", "update", "input_pos kv_cache_k_0 kv_slice_k_0", "kv_cache_k_0"),
        make("embedder", "short", "args_0", "anything"),
        make("embedder", "long", "args_1", "anything"),
    ]
    assert list_keys(list_step(main, parts)) == ["long", "mask", "prefill", "update"]
    assert list_keys(list_step(main, parts[:-1])) == ["short", "mask", "prefill", "update"]
    assert list_step(main, parts[:2]) is None  # nothing updates the caches
    assert count_tokens(parts) == 2


def test_signatures_with_unknown_inputs_are_no_steps() -> None:
    assert (
        list_step(make("m", "prefill", "tokens kv_cache_k_0 picture", "kv_cache_k_0"), []) is None
    )
    assert list_step(make("m", "prefill", "tokens", "mask"), []) is None  # no caches
    assert list_step(make("m", "decode", "tokens kv_cache_k_0", "kv_cache_k_0"), []) is None
    assert list_step(make("m", "prefill", "mask kv_cache_k_0", "kv_cache_k_0"), []) is None
    integers = make("m", "prefill", "tokens mask kv_cache_k_0", "kv_cache_k_0", DType.INT8)
    assert list_step(integers, []) is None
    main = make("m", "prefill", "a kv_cache_k_0", "kv_cache_k_0")
    circle = [make("x", "one", "b", "a"), make("y", "two", "a", "b")]
    assert list_step(main, circle) is None


class Recorder:
    """A signature that keeps its inputs, and returns given outputs."""

    def __init__(self, part: BundleSignature, outputs: Mapping[str, Any]) -> None:
        types = {"valid_mask": np.bool_, "mask": np.float32, "embeddings": np.float32}
        self.shapes = {
            name: (tensor.shape, np.dtype(types.get(name, np.int32)))
            for name, tensor in part.signature.inputs.items()
        }
        self.outputs, self.calls = outputs, list[dict[str, Any]]()

    def compute_outputs(self, feeds: Mapping[str, Any]) -> Mapping[str, Any]:
        self.calls.append({name: array.tolist() for name, array in feeds.items()})
        return self.outputs


def test_single_tokens_are_computed_one_by_one_and_joined() -> None:
    """An embedder of one token runs for each token; caches are those after the update."""
    parts = [
        make("embedder", "short", "args_0", "anything"),
        make("m", "prefill", "embeddings kv_cache_k_0 mask", "kv_slice_k_0"),
        make("aux", "update", "time_step valid_mask kv_cache_k_0 kv_slice_k_0", "kv_cache_k_0"),
    ]
    row, new = np.zeros((1, 1, 3)), np.ones((1, 4))
    made = [{"anything": row}, {"kv_slice_k_0": np.array([7])}, {"kv_cache_k_0": new}]
    step = [(part, Recorder(part, outputs)) for part, outputs in zip(parts, made, strict=True)]
    caches = run_step(step, [5, 6], 1, {})
    assert caches == {"kv_cache_k_0": new}
    (_, embedder), (_, main), (_, update) = step
    assert embedder.calls == [{"args_0": [[5]]}, {"args_0": [[6]]}]
    hidden = -1e9
    assert main.calls[0]["embeddings"] == [[[0.0] * 3] * 2]
    assert main.calls[0]["mask"] == [[[[0, 0, hidden, hidden], [0, 0, 0, hidden]]]]
    assert main.calls[0]["kv_cache_k_0"] == [[0] * 4]
    assert (update.calls[0]["time_step"], update.calls[0]["valid_mask"]) == (1, [[True, True]])
    assert update.calls[0]["kv_slice_k_0"] == [7]
