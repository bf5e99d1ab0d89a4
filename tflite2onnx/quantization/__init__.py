"""How quantized tensors are stored in ONNX.

An operator declares how its kernel computes with stored integers (`declarations`). `quantize.plan`
chooses how each tensor is stored and how each operand is read, by the first rule of a table that
applies (`rules`). `emit` and the builder carry the plan out. `storage` has the arithmetic on scales
and zero points, `table` describes the plan in words.
"""
