"""Fixtures that more than one test module uses: the jars, a broker, the Spark session, the command."""

import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import hypothesis
import pytest
import xdist
from consumer_groups_tool import start_consumer_groups
from java_lines import JavaLines
from java_records import JavaRecords, start_java_records
from kafka_versions import DEFAULT, VERSIONS, KafkaVersion, chosen_version, header, missing_features
from logged import logged
from new_tables import new_tables
from pyspark.sql import SparkSession
from xdist.scheduler import LoadFileScheduling

from streaming.cli.main import main
from streaming.common.times import now_ms
from streaming.demo.local_broker import LocalBroker
from streaming.job.sole_job import temporary_folders
from streaming.jvm.class_archive import archive_options
from streaming.jvm.jars import ensure_jars
from streaming.settings.environment import without_settings
from streaming.settings.reading import read_settings
from streaming.spark.session import start_session
from streaming.tables.tables import Tables

if TYPE_CHECKING:
    from http_endpoint import Opened
    from object_store import ObjectStore
    from page_world import PageWorld

# --- Hypothesis: `quick` is repeatable, `make test HYPOTHESIS_PROFILE=thorough` looks for more -----------

hypothesis.settings.register_profile(
    "quick",
    max_examples=15,
    deadline=None,
    derandomize=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.function_scoped_fixture],
)
hypothesis.settings.register_profile(
    "thorough",
    max_examples=3_000,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.function_scoped_fixture],
)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

# --- settings: none of whoever runs the tests -------------------------------------------------------------

for variable in os.environ.keys() - without_settings(os.environ).keys():
    del os.environ[variable]

# --- signals: what a shell starts in the background ignores SIGINT, and so do its processes -----------------

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# --- what the package logs -------------------------------------------------------------------------------


@pytest.fixture
def said() -> Iterator[list[str]]:
    """What is logged during a test, `info` and above."""
    with logged() as messages:
        yield messages


@pytest.fixture
def silent(said: list[str]) -> Iterator[None]:
    """Nothing may be logged."""
    yield
    assert said == []


BrokerFactory = Callable[..., LocalBroker]

# --- Java: brokers, Spark and Kafka's own classes, of which none runs for long -----------------------------

# The second tier of the compiler costs more than it gives within seconds: a fifth of the processor time.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")

# --- `make test` has three workers: each takes one module after the other ----------------------------------


def pytest_collection_modifyitems(session: pytest.Session, items: list[pytest.Item]) -> None:
    """Sort the modules by how long they take; those of the middle run last, so that workers end together."""
    skip_what_the_broker_lacks(items)
    skip_what_is_left_to_more(items)
    if xdist.is_xdist_worker(session):
        turns: dict[Path, int] = {}
        for item in items:
            turns[item.path] = min(_turn(item), turns.get(item.path, _QUICK))
        items.sort(key=lambda item: turns[item.path])


_ON_ONE_WORKER = {"test_sole_writer.py": "test_object_store.py"}
"""Modules that use a server of another one, which is started once for both if one worker has them."""


class ModulesScheduling(LoadFileScheduling):
    """Gives each module to one worker: to the first one from the begin, to the others from the end.

    So one worker alone starts Spark, and while it waits for processes the others use the cores.
    """

    def _split_scope(self, nodeid: str) -> str:
        module = Path(nodeid.partition("::")[0]).name
        return _ON_ONE_WORKER.get(module, module)

    def _assign_work_unit(self, node: Any) -> None:
        if node.gateway.id != "gw0":
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    return ModulesScheduling(config, log) if config.getoption("dist") == "loadfile" else None


_KINDS = ("slow", "spark", "broker")
_LONG = {
    "test_cli_lag.py",
    "test_delivery.py",
    "test_health_cases.py",
    "test_killed_worlds.py",
    "test_lag_alerts.py",
    "test_maintenance.py",
    "test_page_names.py",
    "test_pages.py",
    "test_serving.py",
    "test_sql.py",
    "test_sql_views.py",
    "test_taken_over.py",
    "test_wrong_clocks.py",
}
"""Modules of none of these kinds that take 15 s and more."""
_QUICK = len(_KINDS) + 1


def _turn(item: pytest.Item) -> int:
    quick = _QUICK - (item.path.name in _LONG)
    return next((turn for turn, kind in enumerate(_KINDS) if item.get_closest_marker(kind)), quick)


def pytest_collection() -> None:
    gc.disable()  # it would look again and again at what stays


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Let the garbage collector look no more at thousands of tests, which stay."""
    gc.enable()
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    gc.unfreeze()


# --- `make test-more`: what `make test` has no time for ----------------------------------------------------


def skip_what_is_left_to_more(items: list[pytest.Item]) -> None:
    """Skip the tests that are marked `more`, unless `make test-more` runs them (it sets MORE)."""
    if "MORE" not in os.environ:
        for item in items:
            if item.get_closest_marker("more"):
                item.add_marker(pytest.mark.skip(reason="`make test-more` runs it"))


# --- Kafka: mark a test that uses these with `broker`, and with `needs` for what not every release has ---

KAFKA = chosen_version()


def pytest_report_header() -> str:
    return header(KAFKA)


def skip_what_the_broker_lacks(items: list[pytest.Item]) -> None:
    for item in items:
        for feature in missing_features(item, KAFKA):
            item.add_marker(pytest.mark.skip(reason=KAFKA.why_not(feature)))


@pytest.fixture(scope="session")
def kafka_version() -> KafkaVersion:
    """The release of the brokers."""
    return KAFKA


@pytest.fixture(scope="session")
def broker_jars(kafka_version: KafkaVersion) -> Path:
    """The directory of the broker's jars."""
    return ensure_jars(kafka_version.jars)


@pytest.fixture(scope="session")
def java_jars() -> Path:
    """The jars of the tests' own Java programs, the same for brokers of every release."""
    return ensure_jars(VERSIONS[DEFAULT].jars)


@pytest.fixture(scope="session")
def broker(kafka_version: KafkaVersion, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    """One broker for the whole run, with 8 offsets partitions: each test takes topics and groups of its own.

    Do not stop it, and do not produce raw bytes into its `__consumer_offsets`: use `make_broker` for that.
    """
    running = kafka_version.broker(tmp_path_factory.mktemp("broker"))
    running.start()
    yield running
    running.kill()  # to end it in good order takes a second, and its data are not read again


@pytest.fixture
def make_broker(
    kafka_version: KafkaVersion, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerFactory]:
    """A function that starts a broker for one test; it takes the keyword arguments of `LocalBroker`."""
    with ExitStack() as running:

        def make(**options: Any) -> LocalBroker:
            broker = kafka_version.broker(tmp_path_factory.mktemp("broker"), **options)
            running.callback(broker.kill)
            broker.start()
            return broker

        yield make


@pytest.fixture(scope="session")
def java_records(java_jars: Path) -> Iterator[JavaRecords]:
    """Kafka's own record classes, in one Java process for the whole run."""
    with start_java_records(java_jars) as oracle:
        yield oracle


@pytest.fixture(scope="session")
def consumer_groups() -> Iterator[JavaLines]:
    """Kafka's own tool for consumer groups, in one Java process for the whole run: see `told_by`."""
    with start_consumer_groups() as tool:
        yield tool


# --- Spark: mark a test that uses these with `spark` -----------------------------------------------------


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One session for the whole run, as the job starts it: two cores, two state partitions."""
    folder = tmp_path_factory.mktemp("spark")
    settings = read_settings(
        options={
            "spark.master": "local[2]",
            "spark.log_file": str(folder / "spark.log"),
            "job.checkpoint": str(folder / "checkpoint"),
            "job.state_partitions": 2,
        }
    )
    with temporary_folders(settings, os.environ) as options:
        jars = ensure_jars("connector")
        options += archive_options(jars)
        session = start_session(settings.spark, settings.job, jars, java_options=options)
        yield session
        session.stop()


# --- the command, in this process --------------------------------------------------------------------------


class Ended(NamedTuple):
    code: Any
    out: str
    err: str


@pytest.fixture
def offsetlake(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """A function that runs the command in this process."""

    def run(*arguments: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["offsetlake", *arguments])
        monkeypatch.setattr(sys, "warnoptions", ["error"])  # as those of pytest are
        with pytest.raises(SystemExit) as ended:
            main()
        return Ended(ended.value.code or 0, *capsys.readouterr())

    return run


# --- tables ----------------------------------------------------------------------------------------------


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    """Tables that nothing was written to yet."""
    return new_tables(tmp_path / "tables")


@pytest.fixture(scope="session")
def object_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator["ObjectStore"]:
    """One S3 server for the whole run: each test takes a root of its own. Skips where it cannot be had."""
    from client_programs import MissingError
    from object_store import start_object_store

    with ExitStack() as running:
        try:
            store = running.enter_context(start_object_store(tmp_path_factory.mktemp("object-store")))
        except MissingError as error:
            pytest.skip(f"the S3 server cannot be had: {error}")
        yield store


# --- pages: tables and a server that the tests of a module only read ---------------------------------------


@pytest.fixture(scope="module")
def page_world(tmp_path_factory: pytest.TempPathFactory) -> "PageWorld":
    from page_world import PageWorld

    return PageWorld(tmp_path_factory.mktemp("pages") / "tables", now_ms())


@pytest.fixture(scope="module")  # its threads must not run beside tests of other modules
def page_endpoint(page_world: "PageWorld") -> Iterator["Opened"]:
    from http_endpoint import opened

    with opened(page_world.tables, every_s=60) as endpoint:
        yield endpoint
        assert endpoint.said == []
