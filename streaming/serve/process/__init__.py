"""The process of `offsetlake serve`: one picture that is kept new, the doors that are answered from it, and a
clean end. `serving` is all of it.
"""
