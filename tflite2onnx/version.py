"""The version, in one place: asking the installed package for it would cost 10 ms a start."""

VERSION = "1.0.0"
