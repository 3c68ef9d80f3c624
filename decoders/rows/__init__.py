"""Reads one record at a time: every type, and whatever is odd about it.

`reference` is the reader that is easy to check, `compiler` makes the quick one of the same formats.
"""
