"""Follows tables by their logs: what each commit added, without opening the table again.

`log` says which commits came after a known one, `rows` reads the files that they name.
"""
