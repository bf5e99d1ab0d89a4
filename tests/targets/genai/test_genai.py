"""`--target genai`: the decoder gives LiteRT's tokens with the inputs of onnxruntime-genai."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime
import pytest

from tests.support import Build, run_signature
from tests.support.decoder import (
    DEPTH,
    HEADS,
    LENGTH,
    TOKENIZER,
    VOCABULARY,
    build_decoder,
    build_language_model,
)
from tests.support.litertlm import Part, compress, message, model_part, pack_litertlm
from tests.support.small import chain
from tests.test_bundle import archive
from tflite2onnx import convert_bundle
from tflite2onnx.bundle import make_bundle
from tflite2onnx.cli import main
from tflite2onnx.errors import BundleError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Captured = pytest.CaptureFixture[str]

FORMS = [
    {"mask": "float32"},
    {"mask": "float16"},
    {"mask": "bool"},
    {"mask": "replaced"},
    {"mask": ""},
    {"mask": "", "tokens_first": True},
    {"mask": "float32", "tokens_first": True},
    {"mask": "float32", "extra": "shared"},
    {"mask": "float32", "extra": "mixed"},
    {"mask": "float32", "rotated": True},
    {"mask": "", "rotated": True, "tokens_first": True},
    {"mask": "", "rotated": "half"},
    {"mask": "float32", "half": True},
    {"mask": "", "half": True, "tokens_first": True},
]
STATE: dict[str, Any] = {"mask": "float32", "extra": "state", "depth": 16}
TOKENS = [3, 14, 7, 1, 1, 9]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change to an empty folder."""
    monkeypatch.chdir(tmp_path)


def run_litert(data: bytes, tokens: list[int]) -> Iterator[np.ndarray[Any, Any]]:
    """Yield LiteRT's logits after each token."""
    from ai_edge_litert.interpreter import Interpreter  # noqa: PLC0415 - slow to import

    details = Interpreter(model_content=data).get_signature_runner("decode").get_input_details()
    state = {n: np.zeros(d["shape"], d["dtype"]) for n, d in details.items() if "cache" in n}
    for place, token in enumerate(tokens):
        feeds = {**state, "tokens": np.array([[token]], np.int32)}
        feeds["input_pos"] = np.array([place], np.int32)
        if "param_tensor" in details:
            numbers = [place, place + 1, place + 1, 1, 0, 0, 0]
            feeds["param_tensor"] = np.array(numbers, np.int32).reshape(1, 1, 1, 7)
        if "mask" in details:
            seen = np.arange(LENGTH) <= place
            dtype = details["mask"]["dtype"]
            hidden = -1e4 if dtype == np.float16 else -1e9
            mask = seen if dtype == np.bool_ else np.where(seen, 0, hidden).astype(dtype)
            feeds["mask"] = mask.reshape(details["mask"]["shape"])
        made = run_signature(data, "decode", feeds)
        state = {name: made[name] for name in state}
        yield made["logits"]


def run_decoder(path: Path, tokens: list[int], *, chunk: int = 1) -> Iterator[np.ndarray[Any, Any]]:
    """Yield the logits after each chunk; the caches are what onnxruntime-genai makes of them."""
    session = onnxruntime.InferenceSession(path)
    types = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
    past = [each for each in session.get_inputs() if "past" in each.name]
    state = {each.name: np.zeros(each.shape, types[each.type]) for each in past}
    present = [f"present.{name.partition('.')[2]}" for name in state]
    for place in range(0, len(tokens), chunk):
        part = tokens[place : place + chunk]
        feeds = {**state, "input_ids": np.array([part], np.int32)}
        feeds["position_ids"] = np.array([range(place, place + len(part))], np.int32)
        logits, *caches = session.run(["logits", *present], feeds)
        state = dict(zip(state, caches, strict=True))
        yield logits


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_logits_equal_litert_token_by_token(form: Mapping[str, Any]) -> None:
    """Positions and caches have the form of onnxruntime-genai, and the mask is computed inside."""
    data = build_decoder(**form)
    Path("model.tflite").write_bytes(data)
    assert main(["model.tflite", "-o", "out", "--target", "genai", "-q"]) == 0
    pairs = zip(run_litert(data, TOKENS), run_decoder(Path("out/model.onnx"), TOKENS), strict=True)
    for want, got in pairs:
        assert got.shape == (1, 1, VOCABULARY)
        np.testing.assert_allclose(got, want, atol=1e-5)
    assert not Path("out/tokenizer_config.json").exists()
    # Attention of this depth is spelled out, and computes one token.
    assert json.loads(Path("out/genai_config.json").read_text())["search"]["chunk_size"] == 1


@pytest.mark.parametrize("chunk", [1, 4, 6])
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_prompts_of_several_tokens_give_the_last_logits(
    form: Mapping[str, Any], chunk: int
) -> None:
    """Several tokens at once give the logits of the last one, also after other tokens."""
    data = build_decoder(**form, depth=16, normalized=True)
    convert_bundle(make_bundle(data), "out", target="genai")
    wanted = [*run_litert(data, TOKENS)]
    found = [*run_decoder(Path("out/model.onnx"), TOKENS, chunk=chunk)]
    for want, got in zip([*wanted[chunk - 1 : -1 : chunk], wanted[-1]], found, strict=True):
        np.testing.assert_allclose(got, want, atol=1e-5)
    assert json.loads(Path("out/genai_config.json").read_text())["search"]["chunk_size"] > 1


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("chunk", [1, 2, 4, 6])
def test_convolutions_read_the_rows_of_earlier_tokens(chunk: int, half: bool) -> None:  # noqa: FBT001
    """The last rows are a state, and several tokens at once have windows of each other's rows."""
    data = build_decoder(**STATE, half=half)
    convert_bundle(make_bundle(data), "out", target="genai")
    wanted = [*run_litert(data, TOKENS)]
    found = [*run_decoder(Path("out/model.onnx"), TOKENS, chunk=chunk)]
    for want, got in zip([*wanted[chunk - 1 : -1 : chunk], wanted[-1]], found, strict=True):
        np.testing.assert_allclose(got, want, atol=1e-5)
    model = json.loads(Path("out/genai_config.json").read_text())["model"]
    decoder = model["decoder"]
    assert (model["type"], decoder["num_hidden_layers"]) == ("lfm2", 2)
    assert decoder["layer_types"] == ["full_attention", "conv"]
    assert decoder["conv_cache_size"] == 2
    assert decoder["inputs"]["past_conv_names"] == "past.%d.conv"
    assert decoder["outputs"]["present_conv_names"] == "present.%d.conv"


@pytest.mark.parametrize("chunk", [1, 2, 4, 6])
def test_linear_attention_updates_its_state_by_all_tokens(chunk: int) -> None:
    """ONNX Runtime has an operator for it. LiteRT has none, and computes its formulas."""
    wanted = [*run_litert(build_decoder(**{**STATE, "extra": "formulas"}), TOKENS)]
    data = build_decoder(**{**STATE, "extra": "recurrence"})
    convert_bundle(make_bundle(data), "out", target="genai")
    found = [*run_decoder(Path("out/model.onnx"), TOKENS, chunk=chunk)]
    for want, got in zip([*wanted[chunk - 1 : -1 : chunk], wanted[-1]], found, strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-6 * np.ptp(want))
    model = json.loads(Path("out/genai_config.json").read_text())["model"]
    assert model["type"] == "qwen3_5_text"
    assert model["decoder"]["layer_types"] == ["full_attention", "linear_attention"]
    nodes = onnx.load("out/model.onnx").graph.node
    assert "LinearAttention" in [node.op_type for node in nodes]


def test_states_of_another_form_are_refused() -> None:
    """Without known attention a decoder takes single tokens, which states do not allow."""
    with pytest.raises(BundleError, match="gives a decoder with states all tokens of a prompt"):
        convert_bundle(make_bundle(build_decoder(**{**STATE, "depth": 4})), "out", target="genai")
    for shapes, reason in (
        ([[1, 4]], r"the state kv_cache_c_1 must be an input and an output"),
        ([[1, 4, 2], [1, 8, 2]], r"wants states of one shape, got \[\[1, 4, 2\], \[1, 8, 2\]\]"),
    ):
        m = Build()
        inputs = {
            "tokens": m.input([1, 1], dtype="int32"), "input_pos": m.input([1], dtype="int32")
        }  # fmt: skip
        caches = {f"kv_cache_{kind}_0": m.input([1, 8, 2, 16]) for kind in "kv"}
        caches |= {f"kv_cache_c_{i}": m.input(shape) for i, shape in enumerate(shapes, 1)}
        logits = m.input([1, 1, 4])
        m.output(*caches.values(), logits)
        m.signature("decode", {**inputs, **caches}, {**caches, "logits": logits})
        with pytest.raises(BundleError, match=reason):
            convert_bundle(make_bundle(m.bytes()), "out", target="genai")


def test_decoder_without_attention_takes_single_tokens() -> None:
    """Inputs may be outputs: there is no attention, so tokens are computed one by one."""
    m = Build()
    inputs = {"tokens": m.input([1, 1], dtype="int32"), "input_pos": m.input([1], dtype="int32")}
    caches = {f"kv_cache_{kind}_0": m.input([1, 8, 2, 16]) for kind in "kv"}
    logits = m.input([1, 1, 4])
    m.output(*caches.values(), logits)
    m.signature("decode", {**inputs, **caches}, {**caches, "logits": logits})
    convert_bundle(make_bundle(m.bytes()), "out", target="genai")
    assert json.loads(Path("out/genai_config.json").read_text())["search"]["chunk_size"] == 1


def test_layers_may_have_caches_of_other_depths() -> None:
    """Layers of Gemma 4 that see all tokens have twice the depth of the others."""
    m = Build()
    inputs = {"tokens": m.input([1, 1], dtype="int32"), "input_pos": m.input([1], dtype="int32")}
    caches = {
        f"kv_cache_{kind}_{layer}": m.input([1, 8, 2, depth])
        for layer, depth in enumerate((16, 32))
        for kind in "kv"
    }
    made = {name: m.op("ABS", [cache], [[*cache.shape]])[0] for name, cache in caches.items()}
    made["logits"] = m.input([1, 1, 4])
    m.output(*made.values())
    m.signature("decode", {**inputs, **caches}, made)
    result = convert_bundle(make_bundle(m.bytes()), "out", target="genai")["decode"]
    shapes = {end.name: end.sizes for end in result.inputs}
    assert shapes["past_key_values.0.key"] == (1, 2, 8, 16)
    assert shapes["past_key_values.1.value"] == (1, 2, 8, 32)
    assert json.loads(Path("out/genai_config.json").read_text())["model"]["context_length"] == 8


@pytest.mark.parametrize(
    ("mask", "logits", "reason"),
    [
        ([], [1, 1, 4], "the cache kv_cache_k_0 must be"),
        ([1, 1, 1, 8], [], "gives a decoder tokens"),
    ],
)
def test_mask_or_logits_without_axes_are_refused(
    mask: list[int], logits: list[int], reason: str
) -> None:
    """A mask or logits without axes are refused."""
    m = Build()
    inputs = {"tokens": m.input([1, 1], dtype="int32"), "input_pos": m.input([1], dtype="int32")}
    caches = {f"kv_cache_{kind}_0": m.input([1, 8, 2, 16]) for kind in "kv"}
    (scores,) = m.op("ABS", [m.input(logits)], [logits])
    m.output(*caches.values(), scores)
    inputs = {**inputs, **caches, "mask": m.input(mask)}
    m.signature("decode", inputs, {**caches, "logits": scores})
    with pytest.raises(BundleError, match=reason):
        convert_bundle(make_bundle(m.bytes()), "out", target="genai")


@pytest.mark.parametrize(
    ("mask", "length", "reason"),
    [
        ([], 8, "each of the 8 tokens of a cache, got a scalar"),
        ([1, 1, 1, 7], 8, "each of the 8 tokens of a cache, got 7"),
        ([1, 1, 1, 1 << 25], 1 << 25, "at most 16,777,216 tokens, got 33,554,432"),
    ],
)
def test_mask_of_another_length_than_updated_caches_is_refused(
    mask: list[int], length: int, reason: str
) -> None:
    """A mask must have an element for each token of a cache, and a limited number of elements."""
    m = Build()
    inputs = {"tokens": m.input([1, 1], dtype="int32"), "input_pos": m.input([1], dtype="int32")}
    caches = {f"kv_cache_{kind}_0": m.input([1, length, 2, 16]) for kind in "kv"}
    operands = [m.input([1, 1, 2, 16]), m.constant(np.zeros(4, np.int32))]
    results = {
        name: m.op("DYNAMIC_UPDATE_SLICE", [cache, *operands], [[1, length, 2, 16]])[0]
        for name, cache in caches.items()
    }
    logits = m.input([1, 1, 4])
    m.output(*results.values(), logits)
    inputs = {**inputs, **caches, "mask": m.input(mask)}
    m.signature("decode", inputs, {**results, "logits": logits})
    with pytest.raises(BundleError, match=reason):
        convert_bundle(make_bundle(m.bytes()), "out", target="genai")


def test_logits_of_integers_are_refused() -> None:
    """Decoders whose activations are quantized, too."""
    m = Build()
    inputs = {"tokens": m.input([1, 1], dtype="int32"), "input_pos": m.input([1], dtype="int32")}
    caches = {f"kv_cache_{kind}_0": m.input([1, 8, 2, 16]) for kind in "kv"}
    logits = m.input([1, 1, 4], dtype="int16", scale=0.1)
    m.output(*caches.values(), logits)
    m.signature("decode", {**inputs, **caches}, {**caches, "logits": logits})
    with pytest.raises(BundleError, match="logits of float32 or float16, got int16: quantize the"):
        convert_bundle(make_bundle(m.bytes()), "out", target="genai")


def test_parameters_of_another_form_are_refused() -> None:
    m = Build()
    inputs = {"tokens": m.input([1, 1], dtype="int32"), "input_pos": m.input([1], dtype="int32")}
    inputs["param_tensor"] = m.input([1, 7], dtype="int32", name="parameters")
    caches = {f"kv_cache_{kind}_0": m.input([1, 8, 2, 16]) for kind in "kv"}
    logits = m.input([1, 1, 4])
    m.output(*caches.values(), logits)
    m.signature("decode", {**inputs, **caches}, {**caches, "logits": logits})
    reason = r"parameters must be int32\[1, 1, 1, 7\], got int32\[1, 7\]"
    with pytest.raises(BundleError, match=reason):
        convert_bundle(make_bundle(m.bytes()), "out", target="genai")


def test_decoder_of_the_largest_caches_is_chosen() -> None:
    """A model may have a signature for each length of the caches."""
    m = Build()
    for length in (8, 32, 16):
        g = m if length == 8 else m.subgraph(f"decode_{length}")
        inputs = {
            "tokens": g.input([1, 1], dtype="int32"),
            "input_pos": g.input([1], dtype="int32"),
        }
        caches = {f"kv_cache_{kind}_0": g.input([1, length, 2, 16]) for kind in "kv"}
        logits = g.input([1, 1, 4])
        g.output(*caches.values(), logits)
        key = f"decode_cache_{length}"
        m.signature(key, {**inputs, **caches}, {**caches, "logits": logits})
    results = convert_bundle(make_bundle(m.bytes()), "out", target="genai")
    assert "decode_cache_32" in results
    config = json.loads(Path("out/genai_config.json").read_text())
    assert config["model"]["context_length"] == 32


def test_signature_lists_outputs_of_its_graph() -> None:
    """A signature may list a tensor that is not an output of the sub-graph."""
    m = Build()
    inputs = {"tokens": m.input([1, 1], dtype="int32"), "input_pos": m.input([1], dtype="int32")}
    caches = {f"kv_cache_{kind}_0": m.input([1, 8, 2, 16]) for kind in "kv"}
    (scores,) = m.op("ABS", [m.input([1, 1, 4])], [[1, 1, 4]])
    m.output(*caches.values())
    m.signature("decode", {**inputs, **caches}, {**caches, "logits": scores})
    with pytest.raises(BundleError, match="of its sub-graph, got tensor_"):
        convert_bundle(make_bundle(m.bytes()), "out", target="genai")


def test_metadata_become_genai_and_tokenizer_configurations() -> None:
    """The metadata of a container become genai_config.json and tokenizer_config.json."""
    data = build_language_model(build_decoder(), model_part(chain("ABS"), "vision_encoder"))
    Path("model.litertlm").write_bytes(data)
    assert main(["model.litertlm", "out", "--target", "genai"]) == 0
    made = {path.name for path in Path("out").iterdir()}
    assert made == {
        "model.onnx", "vision_encoder.onnx", "genai_config.json", "tokenizer_config.json",
        "tokenizer.json", "llm_metadata.pb", "manifest.json",
    }  # fmt: skip
    config = json.loads(Path("out/genai_config.json").read_text())
    model, search = config["model"], config["search"]
    assert model["eos_token_id"] == [15, 2]
    assert (model["bos_token_id"], model["pad_token_id"]) == (1, 0)
    assert (model["context_length"], model["vocab_size"]) == (6, VOCABULARY)
    decoder = model["decoder"]
    assert (decoder["head_size"], decoder["num_key_value_heads"]) == (DEPTH, HEADS)
    assert (decoder["filename"], decoder["num_hidden_layers"]) == ("model.onnx", 1)
    assert (search["top_k"], search["top_p"], search["temperature"]) == (5, 0.5, 0.75)
    assert search["do_sample"]
    tokenizer = json.loads(Path("out/tokenizer_config.json").read_text())
    assert tokenizer["chat_template"] == '{{ "<s>" }}{{ messages }}'
    assert (tokenizer["bos_token"], tokenizer["pad_token"]) == ("<s>", "<pad>")
    assert "eos_token" not in tokenizer  # the first stop token is not in the vocabulary
    assert Path("out/tokenizer.json").read_bytes() == TOKENIZER


def test_vocabulary_may_be_a_list_of_scores() -> None:
    """The vocabulary of a tokenizer may be a list of texts with their scores."""
    text = b'{"model": {"vocab": [["a", 0.0], ["</s>", -1.5]]}}'
    metadata = message((2, message((2, "</s>"))))
    parts = [Part("LlmMetadataProto", metadata), Part("HF_Tokenizer_Zlib", compress(text))]
    data = pack_litertlm([*parts, model_part(build_decoder())])
    convert_bundle(data, "out", target="genai")
    config = json.loads(Path("out/genai_config.json").read_text())
    assert config["model"]["eos_token_id"] == [1]
    assert not config["search"]["do_sample"]
    assert "chat_template" not in json.loads(Path("out/tokenizer_config.json").read_text())


def executor(axis: int) -> Part:
    """Return metadata that name the axis of the tokens of a cache."""
    cache = message((3, "kv_cache_k_0"), (7, axis))
    return Part("ExecutorMetadataProto", message((1, message((2, cache)))))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (build_language_model(build_decoder(extra="extra")), "decode reads .*extra"),
        (pack_litertlm([model_part(chain("ABS"))]), "needs the signature decode, got none"),
        (pack_litertlm([model_part(chain("ABS"), "aux")]), r"\(prefill_decode\), got aux"),
        (archive({"a": chain("ABS")}), r"\(prefill_decode\), got a"),
        (pack_litertlm([executor(0), model_part(build_decoder())]), "the cache kv_cache_k_0 must"),
        (pack_litertlm([executor(1), model_part(build_decoder())]), "caches of one length"),
        (
            pack_litertlm(
                [Part("HF_Tokenizer_Zlib", compress(b"[]")), model_part(build_decoder())]
            ),
            r"tokenizer\.json is damaged",
        ),
    ],
)
def test_unsuitable_containers_are_refused(data: bytes, reason: str) -> None:
    with pytest.raises(BundleError, match=reason):
        convert_bundle(data, "out", target="genai")
    assert not Path("out").exists()


def test_genai_target_needs_a_folder_and_its_package_to_verify_it(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The target needs a folder; without the package a verification says how to install it."""
    monkeypatch.setitem(sys.modules, "onnxruntime_genai", None)
    Path("model.tflite").write_bytes(build_decoder())
    assert main(["model.tflite", "--target", "genai"]) == 1
    assert "--target genai must be given with a model and -o FOLDER" in capsys.readouterr().err
    assert main(["model.tflite", "-o", "out", "--target", "genai", "--verify"]) == 1
    assert (
        "verifying needs onnxruntime-genai: pip install onnxruntime-genai"
        in capsys.readouterr().err
    )
    assert main(["model.tflite", "model.tflite", "-o", "out", "--target", "genai", "-q"]) == 0
    assert Path("out/model/model.onnx").exists()


def test_signatures_beside_the_decoder_are_right() -> None:
    """The converter's other signatures share their weights, and are right."""
    Path("model.tflite").write_bytes(build_decoder())
    assert main(["model.tflite", "-o", "out", "--signature", "all", "--verify", "-q"]) == 0
    assert {path.name for path in Path("out").iterdir()} == {
        "decode.onnx", "prefill_3.onnx", "manifest.json",
    }  # fmt: skip
