"""The bundle of a language model becomes the folder that onnxruntime-genai loads."""

from functools import partial

from tflite2onnx.reader.containers.bundle import Bundle
from tflite2onnx.reader.model import read_model
from tflite2onnx.targets.genai.connections import connect_models
from tflite2onnx.targets.genai.decoder import (
    FILE,
    choose_signature,
    find_decoder,
    list_decoder_files,
    prepare_decoder,
)
from tflite2onnx.targets.genai.prompts import take_prompts
from tflite2onnx.targets.prepared import PreparedModel


def prepare_model(bundle: Bundle) -> PreparedModel:
    """Return the decoder of a bundle; BundleError if there is none that onnxruntime-genai runs."""
    name = find_decoder(bundle)
    model = read_model(bundle.models[name])
    connected, others = connect_models(bundle, name, model, choose_signature(model).key)
    decoder = take_prompts(prepare_decoder(name, connected, bundle.description))
    return PreparedModel(
        name=name,
        signature=decoder.signature,
        file=FILE,
        model=decoder.model,
        options=decoder.options,
        replaced=others | {name},
        list_files=partial(list_decoder_files, decoder),
    )
