"""The Java oracle: it encodes every version, decodes what a broker wrote, passes on Kafka's refusals."""

import pytest
from java_records import JavaRecords, KafkaRefusedError, offset_value, records_no_client_writes
from kafka_clients import alter_offsets, create_topics, read_raw

from streaming.demo.broker_offsets import CommittedOffset
from streaming.demo.local_broker import LocalBroker

pytestmark = pytest.mark.broker


def test_bytes_known_from_kafka_s_documentation_of_the_format(java_records: JavaRecords) -> None:
    key = {"group": "g", "topic": "t", "partition": 3}
    assert java_records.encode(0, key, 0, None).key == bytes.fromhex("000000016700017400000003")
    assert java_records.encode(1, key, 0, None).key == bytes.fromhex("000100016700017400000003")
    assert java_records.encode(2, {"group": "g"}, 0, None).key == bytes.fromhex("0002000167")


def test_a_record_of_every_unwritten_version_is_made(java_records: JavaRecords) -> None:
    made = records_no_client_writes(java_records, group="g", topic="t")
    assert [record.name for record in made] == [
        *(f"type 0, value v{version}" for version in range(5)),
        *(f"type 1, value v{version}" for version in range(4)),
        *(f"type 2, value v{version}" for version in (0, 1, 2, 4)),
    ]
    assert len({record.key for record in made}) == len(made)
    for record in made:
        assert record.value is not None
        assert record.fields["value"]["version"] == int.from_bytes(record.value[:2], "big")


def test_what_is_encoded_decodes_to_the_same(java_records: JavaRecords) -> None:
    for record in records_no_client_writes(java_records, group="g", topic="t"):
        if record.fields["key"]["type"] == 0 and record.fields["value"]["version"] > 0:
            continue  # coordinators refuse these since 4.1
        assert java_records.decode(record.key, record.value) == record


def test_an_expire_timestamp_is_in_version_1_only(java_records: JavaRecords) -> None:
    made = records_no_client_writes(java_records, group="g", topic="t")
    with_expiry = {record.name for record in made if "expireTimestamp" in record.fields["value"]["data"]}
    assert with_expiry == {"type 0, value v1", "type 1, value v1"}


def test_a_tombstone_has_no_value(java_records: JavaRecords) -> None:
    record = java_records.encode(1, {"group": "", "topic": "t", "partition": 0}, 4, None)
    assert (record.value, record.fields["value"]) == (None, None)
    assert java_records.decode(record.key, None) == record


def test_what_a_broker_wrote_is_decoded(java_records: JavaRecords, broker: LocalBroker) -> None:
    create_topics(broker.bootstrap_servers, {"oracle": 1})
    committed = CommittedOffset(5, leader_epoch=2, metadata="hé")
    alter_offsets(broker.bootstrap_servers, "oracle", {("oracle", 0): committed})
    [written] = [
        r for r in read_raw(broker.bootstrap_servers) if b"\x00\x06oracle\x00\x06oracle" in (r.key or b"")
    ]
    assert written.key is not None
    fields = java_records.decode(written.key, written.value).fields
    assert fields["key"] == {"type": 1, "data": {"group": "oracle", "topic": "oracle", "partition": 0}}
    assert fields["value"]["data"]["offset"] == 5
    assert fields["value"]["data"]["metadata"] == "hé"


@pytest.mark.parametrize(
    ("key", "value", "refusal"),
    [
        (b"\x00\x63", None, "Unknown"),
        (b"\x00\x01", None, "Could not read record with version 1"),
        (b"\x00\x02\x00\x01g", b"\x00\x63", "version"),
    ],
)
def test_what_kafka_refuses_is_said(
    java_records: JavaRecords, key: bytes, value: bytes | None, refusal: str
) -> None:
    with pytest.raises(KafkaRefusedError, match=refusal):
        java_records.decode(key, value)


def test_a_field_that_the_version_lacks_is_refused_or_missing(java_records: JavaRecords) -> None:
    incomplete = {name: data for name, data in offset_value(1, offset=1).items() if name != "expireTimestamp"}
    with pytest.raises(KafkaRefusedError, match="expireTimestamp"):
        java_records.encode(1, {"group": "g", "topic": "t", "partition": 0}, 1, incomplete)
