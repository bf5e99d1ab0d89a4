"""Files that are no TFLite model: an error names the kind of file, and what to do."""

from collections.abc import Sequence

_ENOUGH = 4096  # The number of bytes at the start of a file from which its kind is recognised.
# The tags of fields that may follow the version in an ONNX model, in the sequence of the file.
_ONNX_FIELDS = b"\x12\x1a\x22\x28\x32\x3a\x42"
_ZIP = (b"pk\x03\x04",)
EXPORT_FIRST = "not a TFLite model: convert it with tf.lite.TFLiteConverter first"
# The beginnings of each kind of file in lower case, bytes that must follow within the first part of
# the file, and the message.
_KINDS = (
    (
        (b"version https://git-lfs",),
        b"",
        "this is a pointer of Git LFS, not the model itself: run git lfs pull",
    ),
    (
        (b"<!doctype", b"<html", b"<?xml"),
        b"",
        "this is a web page, not a TFLite model: download the file itself",
    ),
    ((b"\n",), b"Placeholder", f"this is a graph of TensorFlow (.pb), {EXPORT_FIRST}"),
    ((b"\x08\x01\x12",), b"", f"this is a SavedModel of TensorFlow (.pb), {EXPORT_FIRST}"),
    ((b"{",), b"-model", "this is a model of TensorFlow.js: convert its original to TFLite first"),
    ((b"\x89hdf",), b"", f"this is a Keras model (.h5), {EXPORT_FIRST}"),
    (_ZIP, b"config.json", f"this is a Keras model (.keras), {EXPORT_FIRST}"),
    (_ZIP, b"data.pkl", "this is a PyTorch model, not a TFLite model: use litert-torch"),
    ((b"\x1f\x8b",), b"", "this is a gzip file, not a TFLite model: unpack it with gunzip first"),
)
_BUNDLES = (
    (_ZIP, b"", "this is a zip archive (a .task bundle?), not a TFLite model: use convert_bundle"),
    (
        (b"litertlm",),
        b"",
        "this is a .litertlm file, which is a bundle of models: use convert_bundle",
    ),
)


def describe_foreign_file(data: memoryview) -> str:
    """Return the kind of a file and how to get a TFLite model, or what an unknown file lacks."""
    words = recognize_file(data, (*_KINDS, *_BUNDLES))
    if words:
        return words
    if _is_onnx(data):
        return "this is an ONNX model, not a TFLite model: give the .tflite file"
    if bytes(data[4:8]) == b"ORTM":
        return "this is a model of ONNX Runtime (.ort), not a TFLite model: give the .tflite file"
    if len(data) < 8:  # the bytes are the offset of the root table and the identifier
        return "the file is truncated: too short for a TFLite model"
    return (
        "this is not a TFLite model (the identifier TFL3 is missing), nor a bundle (a zip archive)"
    )


def recognize_file(
    data: memoryview, kinds: Sequence[tuple[tuple[bytes, ...], bytes, str]] = _KINDS
) -> str:
    """Return the kind of a file and what to do, "" if it is none of the kinds."""
    start = bytes(data[:_ENOUGH])
    text = start.lstrip().lower()
    found = (
        words
        for begins, part, words in kinds
        if (text.startswith(begins) or start.startswith(begins)) and part in start
    )
    return next(found, "")


def _is_onnx(data: memoryview) -> bool:
    """Return whether a protobuf begins as an ONNX model: with its version, a small number."""
    return len(data) > 2 and data[0] == 0x08 and data[1] < 0x80 and data[2] in _ONNX_FIELDS
