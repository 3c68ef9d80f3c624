"""What follows from a snapshot: lag, status and expiry of groups, and what is counted over time.

`Refresher` has the newest `Assessment`: of one snapshot at one moment, which listeners take as it is.
"""
