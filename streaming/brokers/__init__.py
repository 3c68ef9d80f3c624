"""What the brokers are asked: about the topic, its ends, retention settings, and logs of other topics.

`facts` are the answers; `client_settings` gives the same security settings to librdkafka and to Java.
"""
