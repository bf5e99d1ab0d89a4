"""What stdout holds after an error: the interpreter would write it again at its end, and fail."""

import os
import sys


def discard_stdout() -> None:
    """Send what was not written to stdout, and what follows, nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
