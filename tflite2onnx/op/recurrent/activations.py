"""Activations of the gates of ONNX's LSTM, GRU and RNN.

A recurrent layer that `passes/recurrent` recognises lists them in its `RecurrentOptions`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from tflite2onnx.made_options import GateActivation

# The defaults of RNN, GRU and LSTM.
_USUAL = (["Tanh"], ["Sigmoid", "Tanh"], ["Sigmoid", "Tanh", "Tanh"])
_LINE = 1.0, 0.0  # The numbers alpha and beta of alpha * x + beta.
# ONNX's names, and the alpha and beta of a node if TFLite's operator has none.
ONNX_ACTIVATIONS: Mapping[str, tuple[str, tuple[float, ...]]] = {
    "ELU": ("Elu", (1.0,)),
    "HARD_SIGMOID": ("HardSigmoid", ()),
    "LEAKY_RELU": ("LeakyRelu", ()),
    "LOGISTIC": ("Sigmoid", ()),
    "NONE": ("Affine", _LINE),
    "RELU": ("Relu", ()),
    "TANH": ("Tanh", ()),
}


def list_attributes(activations: Sequence[GateActivation]) -> dict[str, Any]:
    """Return the attributes of a recurrent node with these activations."""
    names, numbers = [], []
    for name, *parameters in activations:
        onnx, needed = ONNX_ACTIVATIONS[name]
        names.append(onnx)
        numbers.append([*(parameter for parameter in parameters if parameter is not None), *needed])
    if names in _USUAL:
        return {}
    alpha, beta = ([row[i] for row in numbers if row[i:]] for i in (0, 1))
    return {
        "activations": names,
        "activation_alpha": alpha or None,
        "activation_beta": beta or None,
    }
