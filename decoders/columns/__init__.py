"""Reads whole columns of offset commits at once, with numpy.

`decode` is the entry point; records of other types, and those that do not fit, go to `decoders.rows`.
"""
