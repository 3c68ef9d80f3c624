"""What follows from a picture: lag, status and expiry of groups, and what is counted over time.

`Keeper` has the newest `Standing`: of one picture at one moment, which doors take as it is.
"""
