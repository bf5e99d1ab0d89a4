"""Facts about operators: their classes state them (`facts`), and passes ask for them."""

from enum import Enum


class Fact(Enum):
    """What may be true of an operator; the value says it in full."""

    ACTIVATION = "a function of each element, as layers apply it to their results"
    APPLIES_ACTIVATION = "`emit` applies the fused activation itself, not the driver"
    CONVOLVES = "convolves an image, the input whose axes begin with N, with filters"
    KEEPS_SEQUENCE = "the output has the elements of the first input, in the same sequence"
    READS_STORED = "the results depend on the stored integers, not on the real numbers"
    REDUCES = "computes along some axes, which the output may lack"
    REPEATS = "for constant elements every part of the output has the same elements"
    SHAPE_ONLY = "outputs depend on the shapes of the inputs, but not on their elements"
    TAKES = "each element of the outputs is another element of the data; parameters say which"
    WRITES_INPUTS = "the kernel writes to the variables among its inputs"
