"""The version; reading it from the installed package would take 10 ms at each start."""

VERSION = "1.0.0"
