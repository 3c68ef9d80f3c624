"""The nouns that all packages share: the schemas, what the job has read, and what can go wrong.

Values and pure functions of them: no file, no network, no clock.
"""
