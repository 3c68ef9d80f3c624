"""Computed from a snapshot: lag, status and expiry of groups, and counters over time.

`Refresher` holds the newest `Assessment`, of one snapshot at one moment; listeners use it as it is.
"""
