"""Names that nobody else has: of tensors, of inputs and outputs, of values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


class Names:
    """Knows which names are taken."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)
        self._copies: Counter[str] = Counter()

    def make_unique(self, wish: str) -> str:
        """Return the name that is wished for, numbered if it is taken or empty; it is taken now."""
        name = wish
        while not name or name in self._taken:
            self._copies[wish] += 1
            name = f"{wish}_{self._copies[wish]}"
        self._taken.add(name)
        return name
