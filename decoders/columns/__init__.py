"""Reads whole columns of offset commits at once, with numpy.

`decode` is the way in; a record that does not fit goes to `decoders.rows`.
"""
