"""What committed offsets are held against: where the logs of their partitions begin and end.

Pure functions of rows; who asks the brokers hands the answers in.
"""
