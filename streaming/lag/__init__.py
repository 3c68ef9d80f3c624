"""Lag: committed offsets held against where the logs of their partitions start and end.

Pure functions of rows; whoever asks the brokers for log ends hands the answers in.
"""
