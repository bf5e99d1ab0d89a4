"""The letters of the axes of all tensors, such as "NHWC", which follow from the operators."""

from collections import deque
from collections.abc import Mapping, Sequence

from tflite2onnx.errors import LayoutError
from tflite2onnx.layout import Axes, Frame, Order, Site
from tflite2onnx.tensor import Tensor

# The tensors of a frame, and the names that the frame gives to their axes.
_Members = list[tuple[Tensor, Axes]]


def name_axes(sites: Sequence[Site], user_letters: Mapping[Tensor, str]) -> dict[Tensor, str]:
    """Return the letters of the axes of each tensor, such as "NHWC", in TFLite's order.

    An operator such as a convolution gives its axes letters. The letters hold for every tensor with
    the same axes, through all operators that keep the axes apart. `user_letters` come before
    letters of operators; of two operators the first operator gives the letters. Tensors without
    letters are left out: a guess from the number of axes would be wrong for most of them.
    """
    letters = dict(user_letters)
    frames_of: dict[Tensor, list[_Members]] = {}
    for members, frame in ((_list_members(site, f), f) for site in sites for f in site.frames):
        for tensor, axes in members:
            frames_of.setdefault(tensor, []).append(members)
            if frame.semantic and all(name.isalpha() and len(name) == 1 for name in axes):
                letters.setdefault(tensor, "".join(axes))
    queue = deque(letters)
    while queue:
        for members in frames_of.get(queue.popleft(), ()):
            new_letters = _spread_letters(members, letters)
            letters |= new_letters
            queue += new_letters
    return letters


def check_letters(
    user_letters: Mapping[Tensor, str],
    letters: Mapping[Tensor, str],
    orders: Mapping[Tensor, Order],
) -> None:
    """Raise LayoutError if the user's layout of a tensor in TFLite is not that of its operators.

    Only the batch and the channels are compared: a user may call the height width. `orders` are the
    orders that the user wants.
    """
    for tensor, given in user_letters.items():
        known = letters.get(tensor, given)
        if sorted(known) != sorted(given):  # names of the user's own
            continue
        if all(known.find(letter) == given.find(letter) for letter in "NC"):
            continue
        wanted = "".join(given[axis] for axis in orders[tensor])
        pairs = f"{known}:{wanted}"
        if wanted == known:
            pairs = f"{known}:{known} to keep it, or {known}:{given} to change it"
        raise LayoutError(
            f"layout of {tensor.name}: the layout in TFLite, which is the first one, must be"
            f" {known} as the operators read it, got {given}; give {pairs}"
        )


def _list_members(site: Site, frame: Frame) -> _Members:
    slots = frame.slots.items()
    members = [(site.reads[i] if i >= 0 else site.writes[~i], axes) for i, axes in slots]
    return [(tensor, axes) for tensor, axes in members if tensor and len(axes) == tensor.rank]


def _spread_letters(members: _Members, letters_of: Mapping[Tensor, str]) -> dict[Tensor, str]:
    """Return letters for the tensors of a frame without letters.

    Axes that share a name get no letter, such as two axes that a RESHAPE merges.
    """
    unknown = [(tensor, axes) for tensor, axes in members if axes and tensor not in letters_of]
    if not unknown:
        return {}
    letters: dict[str, set[str]] = {}
    for tensor, axes in members:
        for name, letter in zip(axes, letters_of.get(tensor, ""), strict=False):
            letters.setdefault(name, set()).add(letter)
    named = {name: min(text) for name, text in letters.items() if len(text) == 1}
    spelled = {t: "".join(named.get(name, "") for name in axes) for t, axes in unknown}
    return {t: spelled[t] for t, axes in unknown if len(set(spelled[t])) == len(axes)}
