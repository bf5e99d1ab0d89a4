"""`.litertlm` files: sections are read and passed on, and lies about them are refused."""

from __future__ import annotations

import json
import random
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.support import Build, pack, run_onnx
from tests.support.litertlm import (
    BLOCK,
    Part,
    build_external,
    compress,
    group,
    message,
    model_part,
    pack_litertlm,
    slice_of,
    varint,
)
from tests.support.small import chain
from tests.test_signatures import build_signatures
from tflite2onnx import convert, convert_bundle, verify
from tflite2onnx.bundle import is_bundle, read_bundle
from tflite2onnx.cli import main
from tflite2onnx.errors import BundleError, ConversionError, ModelFileError
from tflite2onnx.reader.containers.litertlm import read_container
from tflite2onnx.reader.containers.protobuf import decode_message
from tflite2onnx.reader.source import ModelSource

if TYPE_CHECKING:
    from pathlib import Path

TOKENIZER = b'{"version": "1.0"}' * 9
LLM = message(
    (1, message((2, "<s>"))),
    (2, message((1, message((1, varint(2) + varint(300)))))),
    (2, message((2, "</s>"))),
    (4, message((1, 2), (2, 40), (3, 0.5), (4, 1.0), (5, -1))),
    (5, 128),
    (6, message((5, b""))),
    (7, "{{ messages }}"),
    (99, "unknown"),
)
EXECUTOR = message((1, message((2, message((1, "k"), (7, 2))), (3, message((3, 512))))))
PARTS = (
    Part("LlmMetadataProto", LLM),
    Part("ExecutorMetadataProto", EXECUTOR),
    Part("HF_Tokenizer_Zlib", compress(TOKENIZER)),
    Part("SP_Tokenizer", b"pieces", {"model_type": ("StringValue", "tf_lite_text_encoder")}),
    Part("GenericBinaryData", b"any", {"count": ("Int32", -3), "share": ("Float32", 0.5)}),
    Part("Deprecated", b"old"),
    Part("77", b"of the future"),
    model_part(build_signatures()),
    model_part(chain("ABS"), "embedder"),
    model_part(chain("NEG"), "embedder"),
)
METADATA: dict[str, tuple[str, Any]] = {
    "Authors": ("StringValue", "ODML"),
    "flag": ("Bool", True),
    "long": ("UInt64", 1 << 40),
    "precise": ("Double", 0.1),
}


# Containers


def test_sections_have_types_names_and_items(tmp_path: Path) -> None:
    """Each section has its type, name and items; models are named by their role."""
    path = tmp_path / "model.litertlm"
    path.write_bytes(pack_litertlm(PARTS, METADATA))
    assert is_bundle(path)
    bundle = read_bundle(path)
    assert list(bundle.models) == ["prefill_decode", "embedder", "embedder_1"]
    assert {name: bytes(data) for name, data in bundle.files.items()} == {
        "llm_metadata.pb": LLM,
        "executor_metadata.pb": EXECUTOR,
        "tokenizer.json": TOKENIZER,
        "text_encoder_tokenizer.model": b"pieces",
        "data.bin": b"any",
    }
    said = bundle.description
    assert (said["format"], said["version"]) == ("litertlm", "1.7.0")
    assert [each["type"] for each in said["sections"]][5:7] == ["Deprecated", "type 77"]
    assert said["sections"][4]["items"] == {"count": -3, "share": 0.5}
    metadata = said["metadata"]
    assert metadata["Authors"] == "ODML"
    assert metadata["long"] == 1 << 40
    assert (metadata["flag"], metadata["precise"]) == (True, 0.1)
    assert metadata["stop_tokens"] == [{"token_ids": {"ids": [2, 300]}}, {"token_str": "</s>"}]
    sampler = {"type": 2, "k": 40, "p": 0.5, "temperature": 1.0, "seed": -1}
    assert metadata["sampler_params"] == sampler
    assert metadata["llm_model_type"] == {"qwen3": {}}
    state = metadata["llm_executor_metadata"]["state_buffers"]
    assert state == [{"prefill_input_name": "k", "sequence_axis": 2}]


def test_each_signature_becomes_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each signature of each model becomes a file; tokenizers and metadata are passed on."""
    path = tmp_path / "model.litertlm"
    path.write_bytes(pack_litertlm(PARTS, METADATA))
    assert main([str(path), str(tmp_path / "out"), "--verify"]) == 0
    assert capsys.readouterr().out.count("PASSED") == 4
    made = {each.name for each in (tmp_path / "out").iterdir()}
    assert made == {
        "prefill_decode_minus.onnx", "prefill_decode_size.onnx", "embedder.onnx",
        "embedder_1.onnx", "manifest.json", "llm_metadata.pb", "executor_metadata.pb",
        "tokenizer.json", "text_encoder_tokenizer.model", "data.bin",
    }  # fmt: skip
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["metadata"]["max_num_tokens"] == 128
    assert manifest["models"][0]["signature"] == "minus"
    assert main(["inspect", str(path)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("litertlm 1.7.0\nsection ")
    assert 'Authors                "ODML"' in said
    assert main(["inspect", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["container"]["version"] == "1.7.0"
    path.write_bytes(pack_litertlm(PARTS[-1:]))
    assert main(["inspect", str(path)]) == 0
    assert "no metadata" in capsys.readouterr().out


def test_model_without_a_role_is_the_language_model() -> None:
    """The key of the role may be in capitals; a section at the end may be empty."""
    role = {"Model_Type": ("StringValue", "TF_LITE_AUX")}
    parts = [Part("TFLiteModel", chain("ABS")), Part("TFLiteModel", chain("NEG"), role)]
    last = Part("GenericBinaryData", b"")
    place = 1 << 20
    data = pack_litertlm([*parts, last], move=lambda i, b, e: (place, place) if i == 2 else (b, e))
    bundle = read_bundle(data)
    assert list(bundle.models) == ["prefill_decode", "aux"]
    assert bytes(bundle.files["data.bin"]) == b""


def test_refuses_a_container_given_as_a_model() -> None:
    with pytest.raises(ModelFileError, match=r"\.litertlm file, which is a bundle"):
        convert(pack_litertlm(PARTS))


@pytest.mark.parametrize(
    ("data", "message_of"),
    [
        (pack_litertlm(PARTS, version=(2, 0, 0)), "must be 1, got 2.0.0"),
        (pack_litertlm(PARTS)[:20], "truncated or damaged"),
        (pack_litertlm(PARTS)[: 3 * BLOCK], "a section must be at"),
        (
            pack_litertlm(PARTS, move=lambda i, b, e: (b, e) if i else (e, b)),
            "a section must be at",
        ),
        (pack_litertlm(PARTS, move=lambda i, b, e: (b, e + BLOCK * (i == 1))), "must not overlap"),
        (pack_litertlm(PARTS, move=lambda i, b, e: (b * (i > 0), e)), "a section must be at"),
        (pack_litertlm(PARTS[:5]), "must have a TFLite model"),
        (pack_litertlm([Part("LlmMetadataProto", b"\xff")]), r"section 0 \(LlmMeta.*a number ends"),
        (pack_litertlm([Part("HF_Tokenizer_Zlib", b"\0" * 7)]), r"section 0 \(HF_Tokenizer_Zlib\)"),
        (pack_litertlm([model_part(b"nothing")]), "prefill_decode: .*too short"),
    ],
)
def test_refuses_damaged_containers(tmp_path: Path, data: bytes, message_of: str) -> None:
    with pytest.raises(BundleError, match=message_of):
        convert_bundle(data, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_refuses_headers_that_end_outside_the_file() -> None:
    data = bytearray(pack_litertlm(PARTS))
    for end in (0, 32, len(data) + 1, 1 << 63):
        data[24:32] = struct.pack("<Q", end)
        with pytest.raises(BundleError, match="the header must end at 33 to"):
            read_container(memoryview(bytes(data)))


@pytest.mark.parametrize(
    "section",
    [
        struct.pack("<Q", 1 << 40) + compress(b"x")[8:],
        struct.pack("<Q", 3) + compress(bytes(1 << 20))[8:],
        struct.pack("<Q", 9) + compress(b"x")[8:],
        compress(TOKENIZER)[:-9],
    ],
)
def test_refuses_tokenizers_of_another_size(section: bytes) -> None:
    """A tokenizer must unpack to the size that the section declares, which is limited."""
    with pytest.raises(BundleError, match="the tokenizer must unpack to"):
        read_bundle(pack_litertlm([Part("HF_Tokenizer_Zlib", section), *PARTS[-1:]]))


def test_refuses_headers_with_too_many_shared_parts() -> None:
    """A header in which one table is listed many times does not fill the memory."""
    data = pack_litertlm(PARTS, METADATA, times=1000)
    end = struct.unpack_from("<Q", data, 24)[0]
    with pytest.raises(BundleError, match=f"its parts must take at most {2 * (end - 32):,} bytes"):
        read_container(memoryview(data))


def test_damaged_headers_are_read_or_refused() -> None:
    """Any bytes in the header are read or refused."""
    data = pack_litertlm(PARTS, METADATA)
    end = struct.unpack_from("<Q", data, 24)[0]
    generator = random.Random(5)
    outcomes = set()
    for _ in range(2000):
        damaged = bytearray(data)
        for _ in range(generator.randint(1, 4)):
            damaged[generator.randrange(8, end)] = generator.choice((0, 1, 127, 255, 4))
        try:
            read_bundle(bytes(damaged))
        except BundleError:
            outcomes.add("refused")
        else:
            outcomes.add("read")
    assert outcomes == {"read", "refused"}


# Messages


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x28", "ends after the end"),
        (b"\x28" + b"\xff" * 10, "more than 64 bits"),
        (b"\x0a\x7f", "a field ends"),
        (b"\x0b", "the type of a field must be 0, 1, 2 or 5, got 3"),
        (message((5, "text")), "must be an integer"),
        (message((7, 5)), "must be a string"),
        (message((4, message((3, "xx")))), "a float must have 4 bytes"),
    ],
)
def test_decoder_refuses_damaged_messages(data: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        decode_message(data, "LlmMetadata")


def test_fields_of_eight_bytes_are_skipped() -> None:
    data = varint(50 << 3 | 1) + bytes(8) + message((5, 3))
    assert decode_message(data, "LlmMetadata") == {"max_num_tokens": 3}


# External weights


VALUES = np.array([1, 2, 4], np.float32)
X = np.array([10, 20, 30], np.float32)


def test_external_weights_are_read_beside_the_model(tmp_path: Path) -> None:
    """A group of external weights is a file in the folder of the model."""
    data, weights = build_external("weights.bin", VALUES)
    path = tmp_path / "model.tflite"
    path.write_bytes(data)
    with pytest.raises(ModelFileError, match=r"cannot read .*weights\.bin"):
        convert(path)
    with pytest.raises(ModelFileError, match=r"weights in the file weights\.bin: it must be given"):
        convert(data)
    (tmp_path / "weights.bin").write_bytes(weights)
    (made,) = run_onnx(convert(path).model, {"x": X})
    assert made.tolist() == [11, 22, 34]
    assert verify(path).ok
    (tmp_path / "weights.bin").write_bytes(weights[:-1])
    with pytest.raises(ModelFileError, match="must have at least 16 bytes, got 15"):
        convert(path)


def test_external_weights_are_read_from_their_section(tmp_path: Path) -> None:
    """The weights of a model in a `.litertlm` file are in the section with the same role."""
    data, weights = build_external("any", VALUES)
    other, _ = build_external("any", VALUES)
    parts = [
        model_part(weights, kind="TFLiteWeights"),
        model_part(data),
        model_part(
            weights.replace(VALUES.tobytes(), (2 * VALUES).tobytes()), "aux", "TFLiteWeights"
        ),
        model_part(other, "aux"),
    ]
    results = convert_bundle(pack_litertlm(parts), tmp_path / "out")
    for name, want in (("prefill_decode", [11, 22, 34]), ("aux", [12, 24, 38])):
        (made,) = run_onnx(results[name].model, {"x": X})
        assert made.tolist() == want
    bundle = read_bundle(pack_litertlm(parts))
    assert verify(bundle.models["aux"], results["aux"]).ok
    with pytest.raises(BundleError, match="must have at least 16 bytes, got 0"):
        convert_bundle(pack_litertlm(parts[1:2]), tmp_path / "none")


def test_models_of_one_role_have_weights_in_the_same_sequence() -> None:
    data, weights = build_external("any", VALUES)
    parts = [model_part(weights, kind="TFLiteWeights"), model_part(b"2", kind="TFLiteWeights")]
    bundle = read_bundle(pack_litertlm([model_part(data), *parts, model_part(data)]))
    found = [bytes(source.weights or b"") for source in bundle.models.values()]
    assert found == [weights, b"2"]
    bundle = read_bundle(pack_litertlm([model_part(data), parts[0], model_part(data)]))
    assert {bytes(source.weights or b"") for source in bundle.models.values()} == {weights}


def test_refuses_wrong_references_to_external_weights(tmp_path: Path) -> None:
    def expect(change: Any, reason: str) -> None:
        m = Build()
        m.output(*m.op("ABS", [m.constant(VALUES)], [[3]]))
        model = m.model()
        tensor = model.subgraphs[0].tensors[0]
        tensor.buffer, tensor.externalBuffer = 0, 7
        model.externalBufferGroups = [group("../x")]
        model.externalBuffers = [slice_of(7, 0, 12)]
        change(model)
        (tmp_path / "m.tflite").write_bytes(pack(model))
        with pytest.raises(ConversionError, match=reason):
            convert(tmp_path / "m.tflite")

    def set_packing(model: Any) -> None:
        model.externalBuffers[0].packing = "4bit"

    def set_group(model: Any) -> None:
        model.externalBuffers[0].group = 3

    def set_id(model: Any) -> None:
        model.externalBuffers[0].id = 8

    expect(lambda _: None, "must be in the folder of the model, got '../x'")
    expect(set_packing, "packing of external weights must be unpacked, got 4bit")
    expect(set_group, "the index of a group of weights must be below 1, got 3")
    expect(set_id, "it has no external buffer 7")


def test_model_may_be_a_view_in_memory() -> None:
    """A memoryview of a model is converted and verified."""
    source = ModelSource(memoryview(chain("ABS")))
    assert convert(memoryview(chain("ABS"))).model == convert(source).model
    assert verify(source).ok
    with pytest.raises(ModelFileError, match="the file is truncated"):
        verify(b"xxxx", convert(source).model)
