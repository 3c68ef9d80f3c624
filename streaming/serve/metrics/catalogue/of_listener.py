"""The metrics of the Kafka listener."""

from typing import Final

from streaming.serve.metrics.catalogue.metric import Metric

OF_LISTENER: Final = (
    Metric(
        name="kafka_requests_total",
        help="Requests to the Kafka listener, by Kafka's name of the API and the version of the API. Version "
        "`other`: an ApiVersions request with a version that is not supported.",
        level="job",
        labels=("api", "version"),
        kind="counter",
        absent="there is no Kafka listener",
        example="sum by (api) (rate(offsetlake_kafka_requests_total[5m]))",
    ),
    Metric(
        name="kafka_client_requests_total",
        help="Requests to the Kafka listener, by name and version of the client's software (KIP-511). "
        "`unknown`: the client did not send the name of its software, or has not signed in yet. `other`: the "
        "listener counts the first 30 pairs of name and version separately, and all later pairs as `other`.",
        level="job",
        labels=("client_software_name", "client_software_version"),
        kind="counter",
        absent="there is no Kafka listener, or no request of the software yet",
        example="sum by (client_software_name) (rate(offsetlake_kafka_client_requests_total[1d]))",
    ),
    Metric(
        name="kafka_errors_total",
        help="Errors in responses of the Kafka listener, by Kafka's names of the API and the error. Each "
        "group, topic or partition with an error is counted, as in Kafka's metric `ErrorsPerSec`. Unlike "
        "`ErrorsPerSec`, this metric has no series for `NONE`.",
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
        help="Connections closed by the Kafka listener, by reason. `connections`: too many connections. "
        "`address`: too many connections from one address. `principal`: too many connections of one "
        "principal. `size`: a request or response was too large. `memory`: large requests together used "
        "too much memory. `tls`: TLS failed. `sign_in`: the client sent another request before it signed "
        "in, or failed to sign in. `request`: a request was malformed or not supported. `busy`: a large "
        "response waited too long for its turn. `late`: the client was too slow to send a request or to "
        "sign in. `idle`: the client sent no request for ten minutes. `unread`: the client did not read "
        "its response. `failed`: an internal error.",
        level="job",
        labels=("reason",),
        kind="counter",
        absent="there is no Kafka listener",
        example='increase(offsetlake_kafka_connections_closed_total{reason!="idle"}[1h]) > 0',
    ),
    Metric(
        name="kafka_past_snapshots",
        help="Number of snapshots of past moments that serve keeps for Kafka clients. The maximum is three "
        "for all clusters together. Replaced snapshots do not count, even while they are still in use.",
        level="job",
        absent="no Kafka listener answers queries about the past",
        example="offsetlake_kafka_past_snapshots",
    ),
    Metric(
        name="kafka_past_snapshots_built_total",
        help="Snapshots of past moments that were read from the tables.",
        level="job",
        kind="counter",
        absent="no Kafka listener answers queries about the past",
        example="increase(offsetlake_kafka_past_snapshots_built_total[1h])",
    ),
)
