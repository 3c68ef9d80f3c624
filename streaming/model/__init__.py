"""Types that all packages share: schemas, the job's progress, and errors.

Values and pure functions of them: no file, no network, no clock. Start at `schemas`, the columns of state and
tables.
"""
