"""ONNX nodes before and after a converted network, which take a picture and return boxes.

`settings` reads the user's options, `preprocessing` and `framing` make the network's input from a
picture, `postprocessing` and its decoders make boxes, scores and labels from the network's outputs,
and `attach` joins both with the network.
"""
