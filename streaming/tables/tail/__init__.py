"""Follows tables by their logs, without opening them again.

`log` yields the commits after a known one, `rows` reads the files that they name.
"""
