"""Unique names of tensors, inputs, outputs and values."""

from collections import Counter
from collections.abc import Iterable


class Names:
    """A set of names that are taken."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)
        self._copies: Counter[str] = Counter()

    def make_unique(self, base: str) -> str:
        """Take a name and return it; a name that is taken or empty gets a number."""
        name = base
        while not name or name in self._taken:
            self._copies[base] += 1
            name = f"{base}_{self._copies[base]}"
        self._taken.add(name)
        return name
