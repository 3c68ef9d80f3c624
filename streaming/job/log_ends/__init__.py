"""Samples the log ends of committed and assigned topic partitions, beside the job.

`rows` is the pure part: answers of brokers to rows of `log_ends`; `sampler` requests them at intervals.
"""
