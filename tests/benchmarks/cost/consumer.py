"""A plain consumer loop that only counts records: the least that reading a topic costs in Python.

`consumer.py BOOTSTRAP TOPIC PARTITIONS [RECORDS]` ends when it has counted so many records; without, never.
"""

import sys

from confluent_kafka import Consumer, KafkaException, TopicPartition

AT_A_TIME = 10_000


def main(bootstrap: str, topic: str, partitions: str, records: str = "0") -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "counting",  # never joined: assign, and no commit
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "fetch.queue.backoff.ms": 10,  # by default a full queue stops fetching for a second
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(int(partitions))])
    counted, wanted = 0, int(records)
    while not wanted or counted < wanted:
        left = wanted - counted if wanted else AT_A_TIME
        messages = consumer.consume(min(AT_A_TIME, left), 1.0)
        counted += len(messages)
        for message in messages:
            if message.error():
                raise KafkaException(message.error())
    print(counted, flush=True)
    consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
