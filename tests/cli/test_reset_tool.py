"""Files for `kafka-consumer-groups --reset-offsets --from-file`, read by that tool."""

from pathlib import Path

import kafka_clients as kafka
import pyarrow as pa
import pytest
from consumer_groups_tool import told_by
from java_lines import JavaLines

from streaming.demo.local_broker import LocalBroker
from streaming.queries.reset_csv import reset_lines

pytestmark = pytest.mark.broker

TOPIC = "put-back"
NAMES = ['of, "two" parts', "gruppe-ü"]


@pytest.fixture(scope="module")
def server(broker: LocalBroker) -> str:
    kafka.create_topics(broker.bootstrap_servers, {TOPIC: 1})
    for group in NAMES:
        kafka.commit_offsets(broker.bootstrap_servers, group, {(TOPIC, 0): 0})
    return broker.bootstrap_servers


@pytest.mark.parametrize("count", [1, 2])
def test_the_tool_reads_what_was_written_for_it(
    server: str, tmp_path: Path, consumer_groups: JavaLines, count: int
) -> None:
    groups = NAMES[:count]
    rows = {
        "group": groups,
        "topic": [TOPIC] * count,
        "partition": [0] * count,
        "committed_offset": [0] * count,
    }
    file = tmp_path / "positions.csv"
    file.write_text("".join(reset_lines(pa.table(rows), one_group=count == 1)), encoding="utf-8")
    named = [argument for group in groups for argument in ("--group", group)]
    said = told_by(consumer_groups, server, "--reset-offsets", "--from-file", str(file), "--dry-run", *named)
    plan = [line.split()[-3:] for line in said.splitlines() if line.rstrip().endswith(" 0") and TOPIC in line]
    assert plan == [[TOPIC, "0", "0"]] * count, said
    assert ("Exception" in said) == (count > 1)  # it tries the form for one group first, and says so
