"""The TFLite metadata of a model, and the files packed with the model.

The metadata are a separate flatbuffer in the buffer TFLITE_METADATA, read by `metadata_schema`.
The files (labels, vocabularies) are in a zip archive that is appended to the model.
"""

import struct
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tflite2onnx.errors import ModelFileError
from tflite2onnx.graph import Model
from tflite2onnx.reader.flatbuffer import Table, TableReader, make_zero_fields, read_root
from tflite2onnx.reader.metadata_schema import ENUMERATIONS, IDENTIFIER
from tflite2onnx.reader.source import AnySource, open_source
from tflite2onnx.utils.archive import DAMAGED, list_entries, open_archive, read_entry

BUFFER = "TFLITE_METADATA"
_FACES = b"FACE_DETECTOR_METADATA"
_NAMES = {name: tuple(names.split()) for name, names in ENUMERATIONS.items()}
# The largest number of tables that are read. Tables of a flatbuffer can be shared, so a small file
# could list more tables than fit into memory.
_MOST_TABLES = 100_000
# The largest number of bytes of all tables, of all archived files, and of all labels.
_MOST_BYTES = 1 << 26
_NUMBER_BYTES = 32  # bytes of a number in memory
_CONTENTS = {"FeatureProperties": "feature", "BoundingBoxProperties": "bounding box"}
_LABELS = ("TENSOR_AXIS_LABELS", "TENSOR_VALUE_LABELS")
_GARBAGE = (struct.error, ValueError, LookupError, OverflowError)


class AssociatedFile(NamedTuple):
    """A file packed with the model; `kind` is one of AssociatedFileType."""

    name: str
    description: str
    kind: str
    locale: str


class TensorMetadata(NamedTuple):
    """The metadata of an input or an output.

    `content` is "image", "audio", "feature", "bounding box" or "". `mean` and `std` normalise an
    input: (x - mean) / std, one number each, or one for each channel. Both are () if the
    metadata lack them. `minimum` and `maximum` are statistics of the elements. `threshold` and
    `calibration` (a transformation and the default score) apply to scores; None if absent.
    """

    name: str
    description: str
    content: str = ""
    color_space: str = ""
    sample_rate: int = 0
    channels: int = 0
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    minimum: tuple[float, ...] = ()
    maximum: tuple[float, ...] = ()
    threshold: float | None = None
    calibration: tuple[str, float] | None = None
    files: tuple[AssociatedFile, ...] = ()


class ModelMetadata(NamedTuple):
    """The metadata of a model; `inputs` and `outputs` are in the main sub-graph's order."""

    name: str
    description: str
    version: str
    author: str
    license: str
    inputs: tuple[TensorMetadata, ...]
    outputs: tuple[TensorMetadata, ...]
    files: tuple[AssociatedFile, ...]


def read_model_metadata(model: Model) -> ModelMetadata | None:
    """Return the metadata of a model, None if it has none; ModelFileError if they are damaged."""
    raw = model.metadata.get(BUFFER, b"")
    if not raw:
        return None
    try:
        if raw[4:8] != IDENTIFIER:
            raise ValueError("the identifier is missing")
        return _MetadataReader().read_model(read_root(memoryview(raw), "ModelMetadata"))
    except _GARBAGE as error:
        raise ModelFileError(
            f"the metadata of the TFLite model is truncated or damaged ({error})"
        ) from error


class _MetadataReader(TableReader):
    def __init__(self) -> None:
        super().__init__(_MOST_BYTES, _MOST_BYTES // _MOST_TABLES)

    def read_model(self, table: Table) -> ModelMetadata:
        graphs = self.read_tables(table["subgraph_metadata"])[:1]
        files = self._read_files(table)
        inputs, outputs = (
            tuple(
                self._read_tensor(t)
                for g in graphs
                for t in self.read_tables(g[f"{kind}_tensor_metadata"])
            )
            for kind in ("input", "output")
        )
        for graph in graphs:
            files += self._read_files(graph)
            units = [*self.read_tables(graph["input_process_units"])]
            units += self.read_tables(graph["output_process_units"])
            files += self._read_vocabularies(units)
        names = ("name", "description", "version", "author", "license")
        texts = {name: self.read_text(table[name]) for name in names}
        return ModelMetadata(**texts, inputs=inputs, outputs=outputs, files=files)

    def _read_files(
        self, table: Table, field: str = "associated_files"
    ) -> tuple[AssociatedFile, ...]:
        return tuple(
            AssociatedFile(
                self.read_text(f["name"]),
                self.read_text(f["description"]),
                _find_enum_name("AssociatedFileType", f["type"]),
                self.read_text(f["locale"]),
            )
            for f in self.read_tables(table[field])
        )

    def _read_vocabularies(self, units: Sequence[Table]) -> tuple[AssociatedFile, ...]:
        options = [unit["options"] for unit in units]
        return tuple(
            file
            for table in options
            if table is not None
            for field in ("sentencepiece_model", "vocab_file")
            if field in table
            for file in self._read_files(table, field)
        )

    def _read_tensor(self, table: Table) -> TensorMetadata:
        units = self.read_tables(table["process_units"])
        kinds = {u["options"].kind: u["options"] for u in units if u["options"] is not None}
        stats = table["stats"] or {"min": (), "max": ()}
        return TensorMetadata(
            self.read_text(table["name"]),
            self.read_text(table["description"]),
            **_read_content(table["content"]),
            **self._read_processing(kinds),
            minimum=self._read_floats(stats["min"]),
            maximum=self._read_floats(stats["max"]),
            files=self._read_files(table) + self._read_vocabularies(units),
        )

    def _read_processing(self, options: dict[str, Table]) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        if normalization := options.get("NormalizationOptions"):
            fields |= {name: self._read_floats(normalization[name]) for name in ("mean", "std")}
        if thresholding := options.get("ScoreThresholdingOptions"):
            fields["threshold"] = thresholding["global_score_threshold"]
        if calibration := options.get("ScoreCalibrationOptions"):
            kind = _find_enum_name("ScoreTransformationType", calibration["score_transformation"])
            fields["calibration"] = kind, calibration["default_score"]
        return fields

    def _read_floats(self, numbers: Sequence[float]) -> tuple[float, ...]:
        self.use_budget(_NUMBER_BYTES * len(numbers))
        return tuple(float(number) for number in numbers)


def _read_content(table: Table | None) -> dict[str, Any]:
    properties: Table | None = table and table["content_properties"]
    if properties is None:
        return {}
    if properties.kind == "ImageProperties":
        space = _find_enum_name("ColorSpaceType", properties["color_space"])
        return {"content": "image", "color_space": space}
    if properties.kind == "AudioProperties":
        rate, channels = properties["sample_rate"], properties["channels"]
        return {"content": "audio", "sample_rate": rate, "channels": channels}
    return {"content": _CONTENTS[properties.kind]}


def _find_enum_name(enumeration: str, number: int) -> str:
    names = _NAMES[enumeration]
    return names[number] if 0 <= number < len(names) else str(number)


def describe_face_detector(model: Model) -> dict[str, Any]:
    """Return the options of MediaPipe's anchors and boxes in a model: strides, interpolated, ...

    The result is empty if the model has no options, or has options of another decoding than that
    of MediaPipe's published detectors: anchors of fixed size, boxes and key points as x before y in
    pixels of the input, and a sigmoid over scores.

    Raises:
        ModelFileError: the metadata are damaged.
    """
    try:
        anchors, boxes = _find_face_detector(model)
        strides = [int(stride) for stride in anchors["strides"]]
        scales = {boxes[f"{letter}_scale"] for letter in "xywh"}
        points = 4 + 2 * boxes["num_keypoints"]
        ratios = [float(ratio) for ratio in anchors["aspect_ratios"]]
        offsets = anchors["anchor_offset_x"], anchors["anchor_offset_y"]
        usual = (
            anchors["fixed_anchor_size"] and boxes["reverse_output_order"],
            boxes["sigmoid_score"] and boxes["num_classes"] == 1,
            (offsets, ratios, boxes["box_coord_offset"]) == ((0.5, 0.5), [1.0], 0),
            boxes["keypoint_coord_offset"] == 4 and boxes["num_values_per_keypoint"] == 2,
            len(scales) == 1 and boxes["num_coords"] == points > 4,
            all(stride > 0 for stride in strides),
        )
        if not strides or not all(usual):
            return {}
        return {
            "strides": strides,
            "interpolated": float(anchors["interpolated_scale_aspect_ratio"]),
            "boxes": int(boxes["num_boxes"]),
            "numbers": int(boxes["num_coords"]),
        }
    except _GARBAGE as error:
        raise ModelFileError(
            f"the options of the face detector are truncated or damaged ({error})"
        ) from error


def _find_face_detector(model: Model) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the options of anchors and of boxes; all are 0 if the model has no options."""
    kinds = ("AnchorConfig", "TensorsDecodingConfig")
    anchors, boxes = (make_zero_fields(kind) for kind in kinds)
    raw = model.metadata.get(BUFFER, b"")
    reader = _MetadataReader()
    graphs: Any = read_root(memoryview(raw), "ModelMetadata")["subgraph_metadata"] if raw else ()
    for graph in reader.read_tables(graphs)[:1]:
        for entry in reader.read_tables(graph["custom_metadata"]):
            if entry["name"] == _FACES:
                data = memoryview(entry["data"].tobytes())
                options = read_root(data, "FaceDetectorOptions")
                anchors = options["anchor_config"] or anchors
                boxes = options["tensors_decoding_config"] or boxes
    return anchors, boxes


def list_packed_files(model: AnySource) -> dict[str, bytes]:
    """Return the files packed with a model, by name; none if there is no archive.

    Raises:
        ModelFileError: the archive is damaged, or its files are too large to be labels.
    """
    try:
        with open_archive(open_source(model).data) as archive:
            return {e.filename: read_entry(archive, e) for e in list_entries(archive, _MOST_BYTES)}
    except zipfile.BadZipFile:
        return {}
    except (*_GARBAGE, *DAMAGED) as error:
        raise ModelFileError(
            f"the files packed with the TFLite model cannot be read ({error})"
        ) from error


def describe_model(model: Model, source: AnySource) -> dict[str, Any]:
    """Return the metadata of a model as dictionaries, lists, strings and numbers.

    Absent fields are omitted. The lines of label files are listed as `labels`.

    Raises:
        ModelFileError: the metadata, or the files packed with the model, are damaged.
    """
    metadata = read_model_metadata(model)
    if metadata is None:
        return {}
    every = (*metadata.files, *(f for t in (*metadata.inputs, *metadata.outputs) for f in t.files))
    labelled = any(f.kind in _LABELS for f in every)
    files = list_packed_files(source) if labelled else {}
    if sum(len(files.get(f.name, b"")) for f in every if f.kind in _LABELS) > _MOST_BYTES:
        raise ModelFileError(
            "the label files in the metadata of the TFLite model must not exceed"
            f" {_MOST_BYTES:,} bytes together"
        )

    def to_fields(note: AssociatedFile | TensorMetadata | ModelMetadata) -> dict[str, Any]:
        absent = ("", (), 0, None)
        fields = {name: value for name, value in note._asdict().items() if value not in absent}
        if isinstance(note, AssociatedFile) and note.kind in _LABELS and note.name in files:
            fields["labels"] = files[note.name].decode("utf-8", "replace").splitlines()
        for name in fields.keys() & {"inputs", "outputs", "files"}:
            fields[name] = [to_fields(item) for item in fields[name]]
        return fields

    return to_fields(metadata)
