"""Samples where the logs of committed and assigned topic partitions end, beside the job.

`rows` is the pure part: what the brokers answered as rows of `log_ends`; `sampler` asks, at intervals.
"""
