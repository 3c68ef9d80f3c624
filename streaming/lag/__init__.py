"""Lag and health of committed offsets, from samples of where the logs of their partitions start and end.

Pure functions of Arrow tables: callers read tables and brokers. Lag in records and in seconds is in
`lag_time`, the rules of health are in `health_rules`.
"""
