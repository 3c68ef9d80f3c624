"""When the broker will drop an offset (`rules`), and why one that is gone went (`causes`).

Pure functions of rows; what Kafka does stands in `rules`, with its sources.
"""
