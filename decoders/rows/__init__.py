"""Reads one record at a time, of any type.

`reference` is the reader that is easy to check, `documents` the fast one, derived by `compiler`.
"""
