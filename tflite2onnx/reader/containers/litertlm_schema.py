"""The schemas of files of language models, limited to the fields that are read.

TABLES and UNIONS are the tables and unions of the header; the notation is described in `schema`.
MESSAGES are protocol buffers: "number name:type" for each field; [type] is a repeated field. The
sources are litertlm_header_schema.fbs, llm_metadata.proto and executor_metadata.proto of
https://github.com/google-ai-edge/LiteRT-LM, the package litert-lm-builder 0.18, llm_params.proto of
https://github.com/google-ai-edge/mediapipe, and sentencepiece_model.proto of
https://github.com/google/sentencepiece.
"""

from tflite2onnx.reader.schema_text import parse_tables

TABLES = parse_tables("""
LiteRTLMMetaData system_metadata:SystemMetadata section_metadata:SectionMetadata
SystemMetadata entries:[KeyValuePair]
SectionMetadata objects:[SectionObject]
SectionObject items:[KeyValuePair] begin_offset:uint64 end_offset:uint64 data_type:uint8
KeyValuePair key:string value_type:uint8 value:VData
""")

UNIONS = {
    "VData": parse_tables("""
UInt8 value:uint8
Int8 value:int8
UInt16 value:uint16
Int16 value:int16
UInt32 value:uint32
Int32 value:int32
Float32 value:float32
Bool value:bool
StringValue value:string
UInt64 value:uint64
Int64 value:int64
Double value:float64
""")
}

SECTION_TYPES = (
    "NONE",
    "GenericBinaryData",
    "Deprecated",
    "TFLiteModel",
    "SP_Tokenizer",
    "LlmMetadataProto",
    "HF_Tokenizer_Zlib",
    "TFLiteWeights",
    "EmbeddingMetadataProto",
    "ExecutorMetadataProto",
    "TtsMetadataProto",
    "AsrMetadataProto",
)

MESSAGES = {
    "TokenIds": "1 ids:[int]",
    "TokenUnion": "1 token_ids:TokenIds 2 token_str:string",
    "PromptAffixes": "1 prefix:string 2 suffix:string",
    "PromptTemplates": "1 user:PromptAffixes 2 model:PromptAffixes 3 system:PromptAffixes",
    "SamplerParameters": "1 type:int 2 k:int 3 p:float 4 temperature:float 5 seed:int",
    "LlmMetadata": (
        "1 start_token:TokenUnion 2 stop_tokens:[TokenUnion] 3 prompt_templates:PromptTemplates"
        " 4 sampler_params:SamplerParameters 5 max_num_tokens:int 6 llm_model_type:LlmModelType"
        " 7 jinja_prompt_template:string 13 pad_token:TokenUnion 14 min_runtime_version:string"
    ),
    "LlmModelType": (
        "1 generic_model:Any 2 gemma3n:Any 3 function_gemma:Any 4 gemma3:Any 5 qwen3:Any"
        " 7 qwen2p5:Any 8 gemma4:Any 9 fast_vlm:Any 11 lfm2:Any 12 minicpm5:Any 13 minicpmv4:Any"
    ),
    "Any": "",
    "StateBuffer": (
        "1 prefill_input_name:string 2 prefill_output_name:string 3 decode_input_name:string"
        " 4 decode_output_name:string 6 type:int 7 sequence_axis:int"
        " 8 minimum_sequence_length:int 9 maximum_sequence_length:int"
    ),
    "AttentionMaskSettings": (
        "1 attention_mask_type:int 2 local_attention_mask_type:int 3 sliding_window_size:int"
    ),
    "LlmExecutorMetadata": (
        "1 max_history_size:int 2 state_buffers:[StateBuffer]"
        " 3 attention_mask_settings:AttentionMaskSettings"
    ),
    "ExecutorMetadata": "1 llm_executor_metadata:LlmExecutorMetadata",
    # Of archives that MediaPipe writes.
    "LlmParameters": (
        "4 start_token_id:int 5 stop_tokens:[string] 6 start_token:string"
        " 7 input_output_normalizations:[int] 8 prompt_template:PromptTemplate"
    ),
    "PromptTemplate": "1 session_prefix:string 2 prompt_prefix:string 3 prompt_suffix:string",
    # Of SentencePiece.
    "ModelProto": (
        "1 pieces:[SentencePiece] 2 trainer_spec:TrainerSpec 3 normalizer_spec:NormalizerSpec"
    ),
    "SentencePiece": "1 piece:string 2 score:float 3 type:int",
    "TrainerSpec": (
        "3 model_type:int 24 treat_whitespace_as_suffix:int 35 byte_fallback:int 40 unk_id:int"
    ),
    "NormalizerSpec": (
        "2 precompiled_charsmap:bytes 3 add_dummy_prefix:int 4 remove_extra_whitespaces:int"
    ),
}
