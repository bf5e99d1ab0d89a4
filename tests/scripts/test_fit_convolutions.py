"""scripts/fit_convolutions.py: factors of the times of nodes."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest


def test_fitted_factors_are_not_negative(script: Any) -> None:
    """Factors that are not negative, although the bytes alone would have a negative one."""
    products, size = np.array([1e6, 2e6, 4e6, 8e6]), np.array([1e6, 1e6, 2e6, 3e6])
    times = 5 + 20e-6 * products - 1e-6 * size
    terms = np.stack([np.ones(4), 1e-6 * products, 1e-6 * size], 1)
    factors = script.fit_factors(terms, times)
    assert factors[2] == 0
    assert factors[1] == pytest.approx(20, rel=0.1)
    assert np.all(np.abs(terms @ factors / times - 1) < 0.1)


def test_script_prints_factors_for_depthwise(
    script: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(sys, "argv", ["fit_convolutions.py", "1"])
    monkeypatch.setattr(script, "SIZES", (7,))
    script.main()
    assert '"depthwise": Factors(' in capsys.readouterr().out
