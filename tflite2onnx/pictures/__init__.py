"""Pictures in, boxes out: ONNX nodes before and after a converted network.

`settings` reads what the user writes, `preprocessing` and `framing` make the network's input from a
picture, `postprocessing` and its decoders make boxes, scores and labels from the network's outputs,
and `attach` joins both with the network.
"""
