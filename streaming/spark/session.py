"""Starts the Spark session that the job needs."""

import logging
import os
import re
import signal
import socketserver
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from py4j.java_gateway import JavaObject  # type: ignore[import-untyped]
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext, accumulators
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from streaming.common.conf_dir import conf_dir
from streaming.jvm.log_file import output_to
from streaming.settings.created_files import umask_of
from streaming.settings.model import JobSettings, SparkSettings
from streaming.spark.checkpoint import STATE_PARTITIONS, checkpoint_uri
from streaming.spark.java_errors import OF_CONNECTIONS
from streaming.spark.source import SESSION_CONF
from streaming.spark.warm_up import start_workers

_ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

INTERPRETED: Final[Mapping[str, str]] = {
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
}
GENERATED: Final[Mapping[str, str]] = {
    "spark.sql.codegen.factoryMode": "FALLBACK",
    "spark.sql.codegen.wholeStage": "true",
}
"""How Spark evaluates the query's expressions: by interpreting them, or by code that it generates.

Generated code is quicker for each record. But Spark writes the source of it again in every task, for every
offsets partition and in every batch, even where it has compiled the same before: a small batch takes a
fifth less of the JVM's time without. And compiling slows the start, where little is waiting."""

MANY_RECORDS: Final = 200_000
"""From this many records on, generated code is worth what it takes."""

_CHOICE_IS_OURS: Final = "spark.offsetlake.choosesEvaluation"
"""Set where the user has set none of these."""

MIN_DELTAS: Final = "spark.sql.streaming.stateStore.minDeltasForSnapshot"
"""The setting of Spark that is the number of versions of the state between two snapshots."""

_CONF: Final[Mapping[str, str]] = {
    **SESSION_CONF,
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # A batch that is this many versions after the newest snapshot makes one, and maintenance copies it into
    # the checkpoint: soon, so that few further versions come before it. See docs/decisions/0028.
    MIN_DELTAS: "10",
    "spark.sql.streaming.stateStore.maintenanceInterval": "5s",
    # Batches that Spark could go back to: the job never does by more than the newest. The others are there so
    # that a start could do without a snapshot that is damaged.
    "spark.sql.streaming.minBatchesToRetain": "30",
    # A block holds what is in one Arrow batch: bigger ones let more superseded commits be dropped early, but
    # all of its rows wait for Python's answer in the JVM. The bytes bound the memory where values are large.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(64 * 1024 * 1024),
    # What a batch gives is bounded by its records; Spark's own limit (1g) would fail it for ever instead.
    "spark.driver.maxResultSize": "0",
    # Spark keeps workers with this setting apart from those of stateful operators, which do not heed it: then
    # there are twice as many, each of which has to start and import everything.
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
    # Workers import nothing from the folder in which the job was started: anybody may have put it there.
    "spark.executorEnv.PYTHONSAFEPATH": "1",
    "spark.sql.adaptive.enabled": "false",  # has no effect on stateful queries but warns
    "spark.ui.enabled": "false",
    "spark.ui.killEnabled": "false",  # nobody who has the page in a browser is asked who they are
    # Spark notes finished work for its UI, even without one: by default a thousand of each, and of tasks a
    # hundred thousand. In a job of months that is memory without use.
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.ui.retainedExecutions": "50",
    "spark.ui.showConsoleProgress": "false",
    # Between batches the heap is nearly empty, and the serial collector gives memory back only after it has
    # looked at all of it: 0.3 s then.
    "spark.cleaner.periodicGC.interval": "5min",
    # Rows that wait for Python's answer take a page at least: by default one of 32 MB for a handful of rows.
    "spark.buffer.pageSize": "4m",
    "spark.log.structuredLogging.enabled": "false",
}
"""What offsetlake sets; a user's `spark.conf` wins, except over what the source needs to see anything."""

_LOCAL_MASTER: Final[Mapping[str, str]] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Driver and block manager listen nonetheless, and take Java objects from every user of this machine who
    # has no secret to prove. Spark makes one at each start, which stays in the JVM.
    "spark.authenticate": "true",
    # Python workers, accumulators and the state of a query in Python: at sockets in a folder of ours alone.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.daemon.module": "streaming.spark.worker_daemon",
    # Rows wait outside of the heap, whose collector would copy them again and again; where there is no room,
    # on the disk.
    "spark.memory.offHeap.enabled": "true",
    "spark.memory.offHeap.size": "512m",
    # That process is forked, so it must have no other threads: Arrow's allocator starts one for its cleaning.
    "spark.executorEnv.JE_ARROW_MALLOC_CONF": "background_thread:false",
}
"""What is set where Spark's master is this process: no other machine is to reach it, and workers find us."""

_CLUSTER: Final[Mapping[str, str]] = {
    "spark.executor.extraJavaOptions": "-XX:+UseParallelGC",  # executors catch up, with all cores
}
"""What is set where executors are processes elsewhere. Spark chooses the driver's address, or the user."""

_LOCAL_FILES: Final[Mapping[str, str]] = {
    # For every file that Hadoop makes in a local folder it starts a process to set the mode. This one lets
    # Java do so, and is the same in all else: checksums, renames. Not on a cluster: Spark needs its file
    # system before it has the jars.
    "spark.hadoop.fs.file.impl": "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem",
}
"""What is set where the checkpoint is a local folder and Spark's master is this process."""

_UMASK: Final = "spark.hadoop.fs.permissions.umask-mode"
"""By this Hadoop sets modes itself. On a cluster it stays as it is, since executors may be other users."""

_LOCAL_CHECKPOINT: Final[Mapping[str, str]] = {
    # The default manager asks for modes, too: a state partition commits in a tenth of the time with this one.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
"""What is set where the checkpoint is a local folder."""


_COLLECTOR: Final = (
    "-XX:+UseSerialGC",
    "-Xms192m",  # what it comes to within a minute anyway
    "-XX:MetaspaceSize=128m",  # Spark's classes: by default the heap is collected four times on the way there
    "-XX:MinHeapFreeRatio=20",
    "-XX:MaxHeapFreeRatio=40",
)
"""No one waits for the JVM within a batch, and it holds little from one batch to the next. The serial
collector needs no threads and keeps the heap as small as that: half of what the parallel one took."""

_COUNTERS: Final = "-XX:-UsePerfData"
"""The JVM samples counters for `jps` and `jstat` twenty times a second, also at rest (`jcmd` needs none)."""

_COMPILER: Final = (
    "-XX:Tier4InvocationThreshold=150000",
    "-XX:Tier4MinInvocationThreshold=18000",
    "-XX:Tier4CompileThreshold=450000",
    "-XX:Tier4BackEdgeThreshold=1200000",
)
"""The second compiler works on what has run thirty times as often as by default. What is done for each record
soon has; what is done for each batch would have it busy for hours, and for nothing."""


def start_session(
    spark: SparkSettings, job: JobSettings, jars: Path, *, java_options: Sequence[str] = ()
) -> SparkSession:
    """Start a Spark session with the Kafka connector; `jars` is the directory that holds it.

    On this machine alone the Python workers start meanwhile. The driver's JVM gets `java_options` besides
    ours.
    """
    os.environ["PYSPARK_PYTHON"] = python_of_workers(spark, os.environ)
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if spark.is_local:  # everything is on this machine, so Spark's UI, if it is on, is too
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # The JVM has some three hundred threads. The C library would give them sixteen arenas, and what is freed
    # stays in each: 300 MiB while a topic is first read.
    os.environ.setdefault("MALLOC_ARENA_MAX", "2")
    settings = session_conf(spark, job, jars, java_options=java_options)
    conf = SparkConf().setAppName("offsetlake").setMaster(spark.master).setAll([*settings.items()])
    _leave_end_of_jvm_to_errors()
    with output_to(Path(spark.log_file)), _own_signals():
        context = SparkContext.getOrCreate(conf)
        _authenticate_callbacks(context)
        if spark.is_local:  # elsewhere executors may still be on their way
            start_workers(context)
        return SparkSession.builder.config(conf=conf).getOrCreate()


class Evaluation:
    """Chooses for each batch of a query; not where the user has chosen.

    The first batch by what is waiting, each other one by what the one before has read.
    """

    def __init__(self) -> None:
        self._conf: Mapping[str, str] | None = None

    def choose(self, session: SparkSession, records: int) -> None:
        """Choose for the next batch of the query that runs, or will run, in this session, given how many
        records to expect of it."""
        wanted = GENERATED if records >= MANY_RECORDS else INTERPRETED
        if wanted is self._conf or session.conf.get(_CHOICE_IS_OURS, None) is None:
            return
        for name, value in wanted.items():
            session.conf.set(name, value)
        self._conf = wanted


def forget_closed_sockets(session: SparkSession) -> None:
    """Have the JVM forget sockets that it would delete at its end: it notes three in every batch, and would
    for months, though they are deleted once they are closed.

    To be called where no task runs: what is noted meanwhile may be forgotten as well.
    """
    jvm: Any = session.sparkContext._jvm
    with suppress(Py4JJavaError):  # another Java has it elsewhere; or this one is ending
        held = jvm.java.lang.Class.forName("java.io.DeleteOnExitHook").getDeclaredField("files")
        held.setAccessible(True)
        kept = jvm.java.util.LinkedHashSet()
        for file in jvm.java.lang.String.join("\0", held.get(None)).split("\0"):
            if file and not file.endswith(".sock"):
                kept.add(file)
        held.set(None, kept)


def end_jvm(limit_s: float) -> None:
    """End the JVM of this process's sessions in good order, and wait for its end.

    Raises `TimeoutExpired` after the limit; the JVM is killed then.
    """
    gateway: Any = SparkContext._gateway
    gateway.shutdown()
    gateway.proc.stdin.close()  # whose end the JVM waits for
    try:
        gateway.proc.wait(limit_s)
    finally:
        gateway.proc.kill()  # does nothing where it has ended


def python_of_workers(spark: SparkSettings, environment: Mapping[str, str]) -> str:
    """Return the Python that Spark starts its workers with, the same path on every machine.

    Here it is that of this process: the system's own has none of our packages. On a cluster the user knows.
    """
    chosen = spark.conf.get("spark.pyspark.python") or environment.get("PYSPARK_PYTHON")
    return sys.executable if spark.is_local or chosen is None else chosen


def _authenticate_callbacks(context: Any) -> None:
    """Have this process take calls of `foreachBatch` only from who knows the secret that the JVM has.

    PySpark has it take calls of everyone who connects, and py4j's client in the JVM forgets the secret when
    it is told where to call: so the client is given it again.
    """
    gateway = context._gateway
    secret = gateway.gateway_parameters.auth_token
    gateway.callback_server_parameters.auth_token = secret
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    held = gateway.jvm.java.lang.Class.forName("py4j.CallbackClient").getDeclaredField("authToken")
    held.setAccessible(True)
    held.set(JavaObject("GATEWAY_SERVER", gateway._gateway_client).getCallbackClient(), secret)


def _leave_end_of_jvm_to_errors() -> None:
    """Have PySpark print no tracebacks where the JVM has ended.

    Whoever asks the JVM next raises an error, which says it (`java_errors.end_of_jvm`). They would come from
    the server that the JVM sends accumulators to, and from py4j for each command that is under way.
    """
    for server in (accumulators.AccumulatorTCPServer, accumulators.AccumulatorUnixServer):
        server.handle_error = _handle_error  # type: ignore[method-assign,assignment]
    logging.getLogger().addFilter(_is_of_no_connection)  # py4j tells some by the root logger, ...
    logging.getLogger("py4j").propagate = False  # ... which then has a handler, and others by its own


def _handle_error(server: socketserver.BaseServer, request: Any, address: Any) -> None:
    if not isinstance(sys.exception(), OF_CONNECTIONS):
        socketserver.BaseServer.handle_error(server, request, address)


def _is_of_no_connection(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], OF_CONNECTIONS))


@contextmanager
def _own_signals() -> Iterator[None]:
    """Keep SIGINT and SIGTERM for this process, which stops Spark itself once the current batch is done.

    PySpark replaces the handler of SIGINT. A SIGTERM to the whole process group, as service managers send
    it, would end the JVM in the middle of a batch, so processes that are started meanwhile ignore it. (To
    ignore it here would lose one that comes now, if only some thread of a library does not block it.)
    """
    if threading.current_thread() is not threading.main_thread():  # handlers belong to the main thread
        yield
        return
    interrupt = signal.getsignal(signal.SIGINT)
    _jvm_is_starting.set()
    try:
        yield
    finally:
        _jvm_is_starting.clear()
        signal.signal(signal.SIGINT, interrupt)


def _ignore_sigterm_in_jvm() -> None:
    if _jvm_is_starting.is_set():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


_jvm_is_starting: Final = threading.Event()
os.register_at_fork(after_in_child=_ignore_sigterm_in_jvm)  # PySpark starts the JVM with a `preexec_fn`


def session_conf(
    spark: SparkSettings, job: JobSettings, jars: Path, *, java_options: Sequence[str] = ()
) -> dict[str, str]:
    """Return every Spark setting of the session."""
    users_options = spark.conf.get("spark.driver.extraJavaOptions", "")
    options = [*_java_options(users_options), *java_options, users_options]
    is_folder = checkpoint_uri(job.checkpoint).startswith("file:")
    return {
        **_CONF,
        **(_LOCAL_MASTER if spark.is_local else _CLUSTER),
        **(_LOCAL_CHECKPOINT if is_folder else {}),
        **(_LOCAL_FILES if is_folder and spark.is_local else {}),
        **({_UMASK: f"{umask_of(job.readable_by_group):03o}"} if spark.is_local else {}),
        "spark.driver.memory": spark.driver_memory,
        STATE_PARTITIONS: str(job.state_partitions),
        **({} if spark.conf.keys() & INTERPRETED.keys() else {**INTERPRETED, _CHOICE_IS_OURS: "true"}),
        **spark.conf,
        **SESSION_CONF,
        **_connector(spark, sorted(jars.glob("*.jar"))),
        "spark.driver.extraJavaOptions": " ".join(filter(None, options)),
    }


def _connector(spark: SparkSettings, jars: Sequence[Path]) -> dict[str, str]:
    """Say where the connector is; a user's jars (of a file system, for instance) come beside it.

    Executors elsewhere get copies of what is in `spark.jars`. Alone on this machine it is on the class path
    of the JVM: nothing is copied, and an archive of classes can hold those of the connector.
    """
    paths = [str(jar) for jar in jars]
    name, separator = ("spark.driver.extraClassPath", ":") if spark.is_local else ("spark.jars", ",")
    return {name: separator.join(filter(None, [*paths, spark.conf.get(name, "")]))}


def _java_options(users_options: str) -> list[str]:
    """Return our options of the driver's JVM, without a collector where the user has chosen one.

    Of the others those of the user count, which come later.
    """
    log4j = (conf_dir() / "log4j2.properties").as_uri()
    chosen = re.search(r"-XX:\+Use\w+GC\b", users_options)
    return [f"-Dlog4j2.configurationFile={log4j}", _COUNTERS, *_COMPILER, *([] if chosen else _COLLECTOR)]
