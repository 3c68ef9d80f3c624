"""Prometheus metrics: their declarations, the filter of series, and the bytes of the exposition formats.

`catalogue` declares the metrics, `exposition` writes the results of `streaming.serve.assessment`.
"""
