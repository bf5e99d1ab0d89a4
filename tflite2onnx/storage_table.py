"""The storage plan in words: each quantized tensor in TFLite and in ONNX, and the reasons."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from tflite2onnx.graph import Op
from tflite2onnx.quantization.declarations import list_operands
from tflite2onnx.quantization.rules import Reading, find_file_storage
from tflite2onnx.quantization.storage import REAL, Storage
from tflite2onnx.quantize import OperandStorage, StoragePlan
from tflite2onnx.tensor import Tensor


@dataclass(frozen=True)
class StorageInfo:
    """A tensor in TFLite and in ONNX, how operators read and write it, and why.

    `operator` is the operator that computes the tensor, or the first operator that reads an input
    or a constant; empty for the row of an input or output whose type differs from the type inside
    the model.
    """

    tensor: str
    operator: str
    tflite: str
    onnx: str
    read: str
    why: str


def list_storage(plan: StoragePlan, endpoints: Collection[Tensor] = ()) -> list[StorageInfo]:
    """Return all quantized tensors in order of execution, then inputs and outputs that differ.

    `endpoints` are the inputs, outputs and states of the model. A constant that is stored in
    several ways has a row for each.
    """
    rows: dict[tuple[Tensor, str], StorageInfo] = {}
    for op, operands in plan.operands.items():
        for tensor, planned in _list_quantized_operands(op, operands):
            known = plan.find_storage(tensor) if tensor.data is None else planned
            text, read = _describe_in_onnx(tensor, planned, known), planned.reading.value
            row = rows.get((tensor, text))
            if row is None:
                tflite, place = (
                    describe_storage(find_file_storage(tensor)),
                    f"{op.code} ({op.index})",
                )
                row = StorageInfo(tensor.name, place, tflite, text, read, known.why)
            elif read not in row.read:
                row = replace(row, read=f"{row.read}, {read}")
            rows[tensor, text] = row
    for tensor in dict.fromkeys(endpoints):
        endpoint, inside = plan.find_endpoint_storage(tensor), plan.find_storage(tensor)
        if endpoint.storage.dtype is not inside.storage.dtype:
            tflite, text = (
                describe_storage(find_file_storage(tensor)),
                describe_storage(endpoint.storage),
            )
            row = StorageInfo(tensor.name, "", tflite, text, "input or output", endpoint.why)
            rows[tensor, row.read] = row
    return list(rows.values())


def describe_operator(plan: StoragePlan, output: str) -> str:
    """Return how the operator that computes a tensor reads and writes; "" without integers."""
    for op, operands in plan.operands.items():
        if any(tensor.name == output for tensor in op.outputs):
            return "; ".join(
                f"{tensor.name} is {_describe_in_onnx(tensor, planned, planned)},"
                f" {planned.reading.value}"
                for tensor, planned in _list_quantized_operands(op, operands)
            )
    return ""


def _list_quantized_operands(
    op: Op, operands: Mapping[int, OperandStorage]
) -> Iterator[tuple[Tensor, OperandStorage]]:
    for operand, tensor in list_operands(op).items():
        reading = operands[operand]
        if reading.storage.quantization is not None or reading.reading is Reading.DYNAMIC:
            yield tensor, reading


def _describe_in_onnx(tensor: Tensor, reading: OperandStorage, inside: OperandStorage) -> str:
    is_float = reading.reading is Reading.FLOAT and tensor.data is not None
    return describe_storage(REAL if is_float else inside.storage)


def describe_scale(scale: str, zero_point: int) -> str:
    """Return what integers stand for as text: "0.5 * (stored - 128)"."""
    return f"{scale} * (stored {'+' if zero_point < 0 else '-'} {abs(zero_point)})"


def describe_storage(storage: Storage) -> str:
    """Return a storage as text: "uint8, 0.5 * (stored - 128)".

    "int8 or uint8" are weights whose type is chosen at load; scale and zero point are for int8.
    """
    scales = storage.quantization
    name = f"{storage.dtype.label}{' or uint8' if storage.adapts else ''}"
    if scales is None:
        return name
    if not scales.per_axis:
        return f"{name}, {describe_scale(f'{scales.scale[0]:.6g}', storage.zero_point)}"
    blocks = f" in blocks of {scales.block_size}" if scales.block_size else ""
    points = sorted({int(point) for point in scales.zero_point.flat})
    zeros = f", zero point {points[0]}" if points != [0] else ""
    zeros = zeros if len(points) == 1 else f", zero points {points[0]} to {points[-1]}"
    return f"{name}, {scales.scale.size} scales on axis {scales.axis}{blocks}{zeros}"
