"""Sets without a common element that are joined: a union-find structure."""

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class DisjointSets(Generic[T]):
    """Sets, each with one representative element; a new element is a set by itself."""

    def __init__(self) -> None:
        self._parents: dict[T, T] = {}

    def find(self, element: T) -> T:
        while (parent := self._parents.setdefault(element, element)) is not element:
            self._parents[element] = self._parents[parent]
            element = parent
        return element

    def join(self, elements: Iterable[T]) -> None:
        """Join the sets of some elements to the set of the first."""
        first, *others = elements
        for other in others:
            self._parents[self.find(other)] = self.find(first)
