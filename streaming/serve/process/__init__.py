"""The process of `offsetlake serve`: one snapshot that is kept new, the listeners that are answered from it,
and a clean end. `serving` is all of it.
"""
