"""Expiry of committed offsets: when the broker will drop them (`rules`), and why removed ones were removed
(`causes`).

Pure functions of Arrow tables. `rules` describes Kafka's behaviour, with sources.
"""
