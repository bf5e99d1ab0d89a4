"""Sets that are joined; see disjoint_sets.py."""

from __future__ import annotations

from tflite2onnx.utils.disjoint_sets import DisjointSets


def test_sets_are_joined_through_any_of_their_elements() -> None:
    sets = DisjointSets[str]()
    sets.join(["a", "b"])
    sets.join(["c", "d", "e"])
    assert sets.find("a") == sets.find("b") != sets.find("c")
    sets.join(["b", "e"])
    assert len({sets.find(element) for element in "abcde"}) == 1
    assert sets.find("f") == "f"
