"""Reads whole columns of offset commits at once, with numpy.

`decode` is the entry point. It hands records of other types, and faulty ones, to `decoders.rows`.
"""
