"""`offsetlake check`: what the job would find on a cluster, without starting it.

`checks` asks, `findings` turns answers into lines; `java_client` is Spark's Kafka client in a JVM.
"""
