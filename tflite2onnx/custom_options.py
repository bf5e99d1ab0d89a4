"""Functions that read the bytes of custom options (`Op.custom_options`).

The options of most custom operators are a map in a flexbuffer, which is read already:
`Operator.options`. Others are another flexbuffer, or a protocol buffer.
"""

from tflite2onnx.reader.containers.protobuf import read_fields, read_integers
from tflite2onnx.reader.flexbuffer import decode as decode_flexbuffer

__all__ = ["decode_flexbuffer", "read_fields", "read_integers"]
