"""Runtimes: a folder for each target, with all that is known of it, and the table of the targets.

`table.py` finds the parts of a target, `driver.py` applies its forms, and `checker.py` its rules.
"""
