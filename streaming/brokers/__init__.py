"""Requests to the brokers: the topic, its ends, retention settings, and log ends of other topics.

`facts` are the results; `client_settings` translates security settings for librdkafka and for Java.
"""
