"""The schema of the TFLite metadata, limited to the fields that are read.

The notation is described in `schema`. The sources are metadata_schema.fbs of
https://github.com/tensorflow/tflite-support, version 1.5, and face_detector_metadata_schema.fbs in
mediapipe/tasks/metadata of https://github.com/google-ai-edge/mediapipe.
"""

from tflite2onnx.reader.schema_text import parse_tables

IDENTIFIER = b"M001"

TABLES = parse_tables("""
ModelMetadata name:string description:string version:string subgraph_metadata:[SubGraphMetadata]
    author:string license:string associated_files:[AssociatedFile] min_parser_version:string
SubGraphMetadata name:string description:string input_tensor_metadata:[TensorMetadata]
    output_tensor_metadata:[TensorMetadata] associated_files:[AssociatedFile]
    input_process_units:[ProcessUnit] output_process_units:[ProcessUnit] - -
    custom_metadata:[CustomMetadata]
TensorMetadata name:string description:string - content:Content process_units:[ProcessUnit]
    stats:Stats associated_files:[AssociatedFile]
Content content_properties_type:uint8 content_properties:ContentProperties
ProcessUnit options_type:uint8 options:ProcessUnitOptions
Stats max:[float32] min:[float32]
AssociatedFile name:string description:string type:int8 locale:string version:string
ImageSize width:uint32 height:uint32
CustomMetadata name:string data:[uint8]
FaceDetectorOptions - anchor_config:AnchorConfig tensors_decoding_config:TensorsDecodingConfig
AnchorConfig num_layers:int32 - - - anchor_offset_x:float32 anchor_offset_y:float32 strides:[int32]
    aspect_ratios:[float32] fixed_anchor_size:bool interpolated_scale_aspect_ratio:float32
TensorsDecodingConfig num_classes:int32 num_boxes:int32 num_coords:int32 box_coord_offset:int32
    keypoint_coord_offset:int32 num_keypoints:int32 num_values_per_keypoint:int32 x_scale:float32
    y_scale:float32 w_scale:float32 h_scale:float32 score_clipping_thresh:float32
    reverse_output_order:bool sigmoid_score:bool
""")

UNIONS = {
    "ContentProperties": parse_tables("""
FeatureProperties
ImageProperties color_space:int8 default_size:ImageSize
BoundingBoxProperties index:[uint32] type:int8 coordinate_type:int8
AudioProperties sample_rate:uint32 channels:uint32
"""),
    "ProcessUnitOptions": parse_tables("""
NormalizationOptions mean:[float32] std:[float32]
ScoreCalibrationOptions score_transformation:int8 default_score:float32
ScoreThresholdingOptions global_score_threshold:float32
BertTokenizerOptions vocab_file:[AssociatedFile]
SentencePieceTokenizerOptions sentencepiece_model:[AssociatedFile] vocab_file:[AssociatedFile]
RegexTokenizerOptions delim_regex_pattern:string vocab_file:[AssociatedFile]
"""),
}

ENUMERATIONS = {
    "AssociatedFileType": (
        "UNKNOWN DESCRIPTIONS TENSOR_AXIS_LABELS TENSOR_VALUE_LABELS "
        "TENSOR_AXIS_SCORE_CALIBRATION VOCABULARY SCANN_INDEX_FILE"
    ),
    "ColorSpaceType": "UNKNOWN RGB GRAYSCALE",
    "ScoreTransformationType": "IDENTITY LOG INVERSE_LOGISTIC",
}
