"""Child processes that answer many requests within limits; a child that dies is replaced.

A child is forked from a process that has imported everything and never handles a damaged file, so
that a new child takes a few milliseconds. LiteRT crashes on many damaged files.
"""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import os
import resource
import signal
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

_context = multiprocessing.get_context("fork")
_MOST_REQUESTS = 2000  # requests before a child is replaced, so that leaks do not add up
_WALL_SECONDS = 600  # a child that waits uses no processor time
_POLL_SECONDS = 5
_END_SECONDS = 30  # seconds to write its stack trace, on a slow machine


class Limits(NamedTuple):
    """The limits of a child: bytes of memory, and seconds of processor time for each request."""

    memory: int = 1 << 30
    seconds: int = 10
    files: int = 64
    file_size: int = 1 << 28


class DiedError(Exception):
    """A child ended during a request; the text has the reason and the place in the code."""


class Child:
    """A process that calls a function with each request, and sends the result."""

    def __init__(self, function: Callable[[Any], Any], limits: Limits, log: Path) -> None:
        self._function, self._limits, self._log = function, limits, log
        self._requests = 0
        self._process: BaseProcess | None = None
        self._connection: Connection

    def call(self, request: object) -> Any:
        """Return the result for a request.

        Raises:
            DiedError: the child crashed, or used more processor time than it may.
        """
        if self._process is None or self._requests >= _MOST_REQUESTS:
            self.close()
            self._start()
        self._requests += 1
        try:
            self._connection.send(request)
            if self._connection.poll(_WALL_SECONDS):
                return self._connection.recv()
            reason = "it waits for something"
        except (EOFError, OSError):
            reason = ""
        raise DiedError(self._end(reason))

    def close(self) -> None:
        """End the process; it cannot see a closed connection, because other children inherit it."""
        if self._process is not None:
            self._end("it is not needed")

    def _start(self) -> None:
        self._connection, theirs = _context.Pipe()
        arguments = (self._function, self._limits, self._log, theirs, self._connection)
        self._process = _context.Process(target=_serve, args=arguments, daemon=True)
        self._process.start()
        theirs.close()
        self._requests = 0

    def _end(self, reason: str) -> str:
        """End the process; return how it ended if it ended before."""
        process, self._process = self._process, None
        if process is None:
            return ""
        self._connection.close()
        process.join(0 if reason else _END_SECONDS)
        if process.exitcode is None:
            process.kill()
            process.join()
            return reason
        number = -process.exitcode
        if number == signal.SIGPROF:
            reason = f"more than {self._limits.seconds} seconds of processor time"
        elif number > 0:
            reason = f"it was ended by {signal.Signals(number).name}"
        where = self._log.read_text(errors="replace") if self._log.exists() else ""
        return f"{reason}\n{where[:3000]}"


def _serve(
    function: Callable[[Any], Any], limits: Limits, log: Path, mine: Connection, theirs: Connection
) -> None:
    """Answer requests until the other process closes the connection."""
    theirs.close()
    _apply_limits(limits, log)
    parent = os.getppid()
    with contextlib.suppress(EOFError, KeyboardInterrupt):
        while os.getppid() == parent:
            if not mine.poll(_POLL_SECONDS):
                continue
            request = mine.recv()
            signal.setitimer(signal.ITIMER_PROF, limits.seconds)
            reply = function(request)
            signal.setitimer(signal.ITIMER_PROF, 0)
            mine.send(reply)
    os._exit(0)


def _apply_limits(limits: Limits, log: Path) -> None:
    file = log.open("w")
    quiet = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):  # the runtimes write to stdout and stderr
        os.dup2(quiet, number)
    faulthandler.enable(file)
    # The signal also ends the process in C code, after it has written the stack trace.
    faulthandler.register(signal.SIGPROF, file, chain=True)
    warnings.simplefilter("error")
    most = limits.memory + _measure_address_space()
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits.files, limits.files))
    resource.setrlimit(resource.RLIMIT_FSIZE, (limits.file_size, limits.file_size))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _measure_address_space() -> int:
    """Return the bytes of address space that this process has inherited: runtimes, other tests."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
