"""The letters of axes, such as NHWC: from operators that give meaning to axes, and from the user.

A convolution says which axis is the height. What it says holds for each tensor whose axes are the
same axes, through all operators that keep them apart. Where nobody says anything there are no
letters: a guess from the number of axes would be wrong for most tensors.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from tflite2onnx.layout import Axes, Frame, Site
from tflite2onnx.tensor import Tensor

_Members = list[tuple[Tensor, Axes]]  # the tensors of a frame, with its names of their axes


def name_axes(sites: Sequence[Site], given: Mapping[Tensor, str]) -> dict[Tensor, str]:
    """Return the letters of the axes, in TFLite's order, of each tensor where they are known.

    Letters that are `given` come before letters of operators; of two operators the first counts.
    """
    known = dict(given)
    frames: list[_Members] = []
    frames_of: dict[Tensor, list[int]] = {}
    for members, frame in ((_members(site, f), f) for site in sites for f in site.frames):
        for tensor, axes in members:
            frames_of.setdefault(tensor, []).append(len(frames))
            if frame.semantic and all(name.isalpha() and len(name) == 1 for name in axes):
                known.setdefault(tensor, "".join(axes))
        frames.append(members)
    waiting = deque(known)
    while waiting:
        for index in frames_of.get(waiting.popleft(), ()):
            for tensor, letters in _spread(frames[index], known).items():
                known[tensor] = letters
                waiting.append(tensor)
    return known


def _members(site: Site, frame: Frame) -> _Members:
    """Return the tensors of a frame, and the names of their axes."""
    found = []
    for operand, axes in frame.slots.items():
        tensor = site.reads[operand] if operand >= 0 else site.writes[~operand]
        if tensor is not None and len(axes) == tensor.rank:
            found.append((tensor, axes))
    return found


def _spread(members: _Members, known: Mapping[Tensor, str]) -> dict[Tensor, str]:
    """Return the letters of tensors of a frame that had none.

    Axes that share a name, such as two that become one, have no letter together.
    """
    letters: dict[str, set[str]] = {}
    for tensor, axes in members:
        for name, letter in zip(axes, known.get(tensor, ""), strict=False):
            letters.setdefault(name, set()).add(letter)
    named = {name: min(each) for name, each in letters.items() if len(each) == 1}
    found = {}
    for tensor, axes in members:
        spelled = "".join(named.get(name, "") for name in axes)
        if tensor not in known and axes and len(set(spelled)) == len(axes):
            found[tensor] = spelled
    return found
