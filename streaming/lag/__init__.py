"""Lag: committed offsets held against where the logs of their partitions start and end.

Pure functions of rows; whoever asks brokers or tables for log ends hands the answers in. Lag in records and
seconds is `lag_time`; the rules of health are `rules`.
"""
