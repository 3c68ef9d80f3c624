"""The metrics of the Kafka listener."""

from typing import Final

from streaming.serve.metrics.catalogue.metric import Metric

OF_LISTENER: Final = (
    Metric(
        name="kafka_requests_total",
        help="Requests to the Kafka listener, by Kafka's name of the API and its version (`other`: one of "
        "ApiVersions that is not supported).",
        level="job",
        labels=("api", "version"),
        kind="counter",
        absent="there is no Kafka listener",
        example="sum by (api) (rate(offsetlake_kafka_requests_total[5m]))",
    ),
    Metric(
        name="kafka_client_requests_total",
        help="Requests to the Kafka listener, by name and version of the client's software (KIP-511). "
        "`unknown`: the client did not name it, or has not signed in yet. `other`: at a listener with more "
        "than 30 of them, those that came last.",
        level="job",
        labels=("client_software_name", "client_software_version"),
        kind="counter",
        absent="there is no Kafka listener, or no request of the software yet",
        example="sum by (client_software_name) (rate(offsetlake_kafka_client_requests_total[1d]))",
    ),
    Metric(
        name="kafka_errors_total",
        help="Errors in responses of the Kafka listener, by Kafka's names of the API and the error. As in "
        "Kafka's metric `ErrorsPerSec`, every group, topic or partition with an error counts; NONE does not.",
        level="job",
        labels=("api", "error"),
        kind="counter",
        absent="there is no Kafka listener, or no such error yet",
        example="sum by (api, error) (rate(offsetlake_kafka_errors_total[5m])) > 0",
    ),
    Metric(
        name="kafka_connections",
        help="Open connections of the Kafka listener.",
        level="job",
        absent="there is no Kafka listener",
        example="offsetlake_kafka_connections",
    ),
    Metric(
        name="kafka_connections_closed_total",
        help="Connections closed by the Kafka listener, by reason: too many connections (`connections`), "
        "also from one address (`address`) or of one principal (`principal`), request or response too large "
        "(`size`), too much memory for large requests together (`memory`), TLS failed (`tls`), client did "
        "not sign in (`sign_in`), request malformed or not supported (`request`), large response waited too "
        "long (`busy`), client was too slow to send a request or to sign in (`late`), sent none for ten "
        "minutes (`idle`) or did not read its response (`unread`), internal error (`failed`).",
        level="job",
        labels=("reason",),
        kind="counter",
        absent="there is no Kafka listener",
        example='increase(offsetlake_kafka_connections_closed_total{reason!="idle"}[1h]) > 0',
    ),
    Metric(
        name="kafka_past_snapshots",
        help="Snapshots of past moments in memory, for Kafka clients that ask about the past. At most three, "
        "of all clusters together.",
        level="job",
        absent="no Kafka listener answers about the past",
        example="offsetlake_kafka_past_snapshots",
    ),
    Metric(
        name="kafka_past_snapshots_built_total",
        help="Snapshots of past moments that were read from the tables.",
        level="job",
        kind="counter",
        absent="no Kafka listener answers about the past",
        example="increase(offsetlake_kafka_past_snapshots_built_total[1h])",
    ),
)
