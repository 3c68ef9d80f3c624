"""Small tools that know nothing of offsets: times, arrays, keys, pieces, texts that are safe to print.

What two rooms need in the same way stands here once.
"""
