"""Starts the job's Spark session."""

import os
import re
import signal
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from py4j.java_gateway import JavaObject  # type: ignore[import-untyped]
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext, accumulators
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from streaming.common.conf_dir import conf_dir
from streaming.jvm.log_file import output_to
from streaming.model.errors import MisuseError
from streaming.settings.created_files import umask_of
from streaming.settings.kinds import MIB
from streaming.settings.memory import USUAL_BYTES, divided
from streaming.settings.model import JobSettings, SparkSettings
from streaming.spark.checkpoint import STATE_PARTITIONS, checkpoint_uri
from streaming.spark.java_errors import OF_CONNECTIONS, is_told_to_end, quiet_py4j
from streaming.spark.s3_checkpoint import is_on_s3, settings_of_s3
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
"""How Spark evaluates the query's expressions: interpreted, or by generated code.

Generated code is faster for each record. But Spark generates its source again in every task, for every
offsets partition and in every batch, even if it has compiled the same source before: without it, a small
batch takes a fifth less of the JVM's time. And compiling slows the start, when few records are waiting."""

MANY_RECORDS: Final = 200_000
"""From this many records on, generated code is faster altogether."""

_CHOICE_IS_OURS: Final = "spark.offsetlake.choosesEvaluation"
"""Set if the user has set none of these."""

MIN_DELTAS: Final = "spark.sql.streaming.stateStore.minDeltasForSnapshot"
"""The Spark setting that is the number of state versions between two snapshots."""

_CONF: Final[Mapping[str, str]] = {
    **SESSION_CONF,
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # A batch that is this many versions after the newest snapshot creates one, and maintenance copies it into
    # the checkpoint: soon, so that few further versions precede it. See docs/decisions/0028.
    MIN_DELTAS: "10",
    "spark.sql.streaming.stateStore.maintenanceInterval": "5s",
    # Batches that Spark can go back to: the job never goes back further than to the newest. The others allow
    # a start in spite of a damaged snapshot.
    "spark.sql.streaming.minBatchesToRetain": "30",
    # The limit in bytes bounds the memory of large values.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(64 * 1024 * 1024),
    # The records of a batch limit its results; Spark's own limit (1g) would make it fail forever instead.
    "spark.driver.maxResultSize": "0",
    # Spark keeps workers with this setting apart from those of stateful operators, which ignore it: then
    # there are twice as many, each of which has to start and import everything.
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
    # Workers import nothing from the job's working directory: others may have put files there.
    "spark.executorEnv.PYTHONSAFEPATH": "1",
    "spark.sql.adaptive.enabled": "false",  # has no effect on stateful queries but warns
    "spark.ui.enabled": "false",
    "spark.ui.killEnabled": "false",  # the page has no authentication
    # Spark records finished work for its UI, even without one: by default a thousand of each, and a hundred
    # thousand tasks. In a job that runs for months this memory is wasted.
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.ui.retainedExecutions": "50",
    "spark.ui.showConsoleProgress": "false",
    # Between batches the heap is nearly empty. The serial collector returns memory only after a full
    # collection, which takes 0.3 s then.
    "spark.cleaner.periodicGC.interval": "5min",
    # Rows that wait for Python's answer take at least a page: by default 32 MB for a handful of rows.
    "spark.buffer.pageSize": "4m",
    "spark.log.structuredLogging.enabled": "false",
}
"""Our settings; a user's `spark.conf` wins, except over those without which the source sees nothing."""

_LOCAL_MASTER: Final[Mapping[str, str]] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Driver and block manager listen nonetheless, and accept Java objects from every user of this machine
    # unless they authenticate. Spark creates a secret at each start, which stays in the JVM.
    "spark.authenticate": "true",
    # Python workers, accumulators and the state of a query in Python: sockets in a folder of this user only.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.daemon.module": "streaming.spark.worker_daemon",
    # Rows wait outside of the heap, where the collector does not copy them; without room there, on the disk.
    "spark.memory.offHeap.enabled": "true",
    # The daemon is forked, so it must not have other threads: Arrow's allocator starts one for its purging.
    "spark.executorEnv.JE_ARROW_MALLOC_CONF": "background_thread:false",
}
"""Settings if Spark's master is this process: no other machine may reach it, and workers can import our
modules."""

_OFF_HEAP: Final = "spark.memory.offHeap.size"

_LOCAL_FILES: Final[Mapping[str, str]] = {
    # For every file in a local folder Hadoop starts a process to set the mode. This class sets it in Java,
    # and is the same otherwise: checksums, renames. Not on a cluster: Spark needs its file system before it
    # has the jars.
    "spark.hadoop.fs.file.impl": "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem",
}
"""Settings if the checkpoint is a local folder and Spark's master is this process."""

_EXECUTORS_OPTIONS: Final = "spark.executor.extraJavaOptions"

_UMASK: Final = "spark.hadoop.fs.permissions.umask-mode"
"""The umask that Hadoop applies itself. On a cluster it stays unchanged, since executors may be other
users."""

_LOCAL_CHECKPOINT: Final[Mapping[str, str]] = {
    # The default manager sets modes, too: with this one a state partition commits in a tenth of the time.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
"""Settings if the checkpoint is a local folder."""


_COLLECTOR: Final = (
    "-XX:+UseSerialGC",
    "-Xms192m",  # the heap's size within a minute anyway
    "-XX:MetaspaceSize=128m",  # for Spark's classes: the default collects the heap four times until then
    "-XX:MinHeapFreeRatio=20",
    "-XX:MaxHeapFreeRatio=40",
)
"""Nothing waits for the JVM within a batch, and it holds little from one batch to the next. The serial
collector needs no threads and keeps the heap as small as that: half of its size with the parallel one."""

_COUNTERS: Final = "-XX:-UsePerfData"
"""The JVM samples counters for `jps` and `jstat` twenty times a second, even when idle (`jcmd` needs
none)."""

_COMPILER: Final = (
    "-XX:Tier4InvocationThreshold=150000",
    "-XX:Tier4MinInvocationThreshold=18000",
    "-XX:Tier4CompileThreshold=450000",
    "-XX:Tier4BackEdgeThreshold=1200000",
)
"""The second compiler compiles code that has run thirty times as often as by default. Code that runs for each
record soon has; compiling code that runs for each batch would take hours, without benefit."""

_CLUSTER: Final[Mapping[str, str]] = {
    # Executors catch up, with all cores.
    "spark.executor.extraJavaOptions": " ".join(("-XX:+UseParallelGC", _COUNTERS, *_COMPILER)),
}
"""Settings if executors are processes elsewhere. Spark chooses the driver's address, or the user does."""


def start_session(
    spark: SparkSettings,
    job: JobSettings,
    jars: Path,
    *,
    more_jars: Sequence[Path] = (),
    properties: Mapping[str, str] | None = None,
    java_options: Sequence[str] = (),
) -> SparkSession:
    """Start a Spark session with the Kafka connector; `jars` is the directory that holds it.

    `more_jars` are directories of what the connector loads by name. With a local master, Python workers start
    in the background. All JVMs get the system `properties`, the driver's also `java_options`, in addition to
    ours.

    Raises `MisuseError` if the JVM of a former session has ended (`end_jvm`): UDFs hold objects of the first
    one.
    """
    former: Any = SparkContext._gateway
    if former is not None and former.proc is not None and is_told_to_end(former.proc):
        raise MisuseError(
            "starting Spark: expected a process in which no job has run before, found that one has. Run each "
            "job in a process of its own."
        )
    os.environ["PYSPARK_PYTHON"] = python_of_workers(spark, os.environ)
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if spark.is_local:  # everything is on this machine, and so is Spark's UI, if it is on
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # The JVM has about three hundred threads. The C library would create sixteen arenas for them, and each
    # keeps freed memory: 300 MiB while a topic is first read.
    os.environ.setdefault("MALLOC_ARENA_MAX", "2")
    settings = session_conf(
        spark,
        job,
        jars,
        more_jars=more_jars,
        properties=properties,
        java_options=java_options,
        environment=os.environ,
    )
    conf = SparkConf().setAppName("offsetlake").setMaster(spark.master).setAll([*settings.items()])
    _leave_end_of_jvm_to_errors()
    with output_to(Path(spark.log_file)), _own_signals():
        context = SparkContext.getOrCreate(conf)
        _authenticate_callbacks(context)
        if spark.is_local:  # on a cluster, executors may not be there yet
            start_workers(context)
        return SparkSession.builder.config(conf=conf).getOrCreate()


class Evaluation:
    """Chooses interpreted or generated code for each batch of a query, unless the user has chosen.

    The choice depends on the expected number of records: for the first batch those that are waiting, for each
    other one those of the batch before.
    """

    def __init__(self) -> None:
        self._conf: Mapping[str, str] | None = None

    def choose(self, session: SparkSession, records: int) -> None:
        """Choose for the next batch of the query in this session, for an expected number of records."""
        wanted = GENERATED if records >= MANY_RECORDS else INTERPRETED
        if wanted is self._conf or session.conf.get(_CHOICE_IS_OURS, None) is None:
            return
        for name, value in wanted.items():
            session.conf.set(name, value)
        self._conf = wanted


def forget_closed_sockets(session: SparkSession) -> None:
    """Make the JVM forget sockets that it would delete when it ends: it adds three in every batch, for
    months, though they are deleted when they are closed.

    Only call this while no task runs: entries that are added meanwhile may be lost.
    """
    jvm: Any = session.sparkContext._jvm
    with suppress(Py4JJavaError):  # another Java has it elsewhere; or this JVM is ending
        held = jvm.java.lang.Class.forName("java.io.DeleteOnExitHook").getDeclaredField("files")
        held.setAccessible(True)
        kept = jvm.java.util.LinkedHashSet()
        for file in jvm.java.lang.String.join("\0", held.get(None)).split("\0"):
            if file and not file.endswith(".sock"):
                kept.add(file)
        held.set(None, kept)


def end_jvm() -> None:
    """Make the JVM of this process's session stop Spark and end: no session can follow in this process.

    The caller can do other work meanwhile.
    """
    gateway: Any = SparkContext._gateway
    if not is_told_to_end(gateway.proc):
        gateway.shutdown()
        gateway.proc.stdin.close()  # the JVM ends when its input does


def wait_for_end_of_jvm(limit_s: float) -> None:
    """Wait for the end of the JVM (`end_jvm`); kill it after `limit_s` seconds."""
    gateway: Any = SparkContext._gateway
    with suppress(subprocess.TimeoutExpired):
        gateway.proc.wait(limit_s)
    gateway.proc.kill()  # no effect if it has ended


def python_of_workers(spark: SparkSettings, environment: Mapping[str, str]) -> str:
    """Return the Python of Spark's workers, the same path on every machine.

    On this machine it is that of this process: the system's own lacks our packages. On a cluster the user
    sets it.
    """
    chosen = spark.conf.get("spark.pyspark.python") or environment.get("PYSPARK_PYTHON")
    return sys.executable if spark.is_local or chosen is None else chosen


def _authenticate_callbacks(context: Any) -> None:
    """Accept calls of `foreachBatch` only from clients with the JVM's secret.

    PySpark accepts calls from everyone who connects, and py4j's client in the JVM drops the secret when it
    gets the address of this server: so it is set again.
    """
    gateway = context._gateway
    secret = gateway.gateway_parameters.auth_token
    gateway.callback_server_parameters.auth_token = secret
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    held = gateway.jvm.java.lang.Class.forName("py4j.CallbackClient").getDeclaredField("authToken")
    held.setAccessible(True)
    held.set(JavaObject("GATEWAY_SERVER", gateway._gateway_client).getCallbackClient(), secret)


def _leave_end_of_jvm_to_errors() -> None:
    """Keep PySpark from printing tracebacks after the JVM has ended.

    The next call to the JVM raises an error that explains it (`java_errors.end_of_jvm`). The tracebacks would
    come from the server for accumulators, and from py4j for each command in progress.
    """
    for server in (accumulators.AccumulatorTCPServer, accumulators.AccumulatorUnixServer):
        server.handle_error = _handle_error  # type: ignore[method-assign,assignment]
    quiet_py4j()


def _handle_error(server: socketserver.BaseServer, request: Any, address: Any) -> None:
    if not isinstance(sys.exception(), OF_CONNECTIONS):
        socketserver.BaseServer.handle_error(server, request, address)


@contextmanager
def _own_signals() -> Iterator[None]:
    """Keep SIGINT and SIGTERM for this process, which stops Spark itself once the current batch has ended.

    PySpark replaces the handler of SIGINT. A SIGTERM to the whole process group, as service managers send
    it, would end the JVM in the middle of a batch, so processes that are started meanwhile ignore it. (If
    this process ignored it, a signal that arrives now would be lost.)
    """
    interrupt = signal.getsignal(signal.SIGINT)
    _jvm_is_starting.set()
    try:
        yield
    finally:
        _jvm_is_starting.clear()
        if threading.current_thread() is threading.main_thread():  # elsewhere PySpark replaces no handler
            signal.signal(signal.SIGINT, interrupt)


def _ignore_sigterm_in_jvm() -> None:
    if _jvm_is_starting.is_set():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


_jvm_is_starting: Final = threading.Event()
os.register_at_fork(after_in_child=_ignore_sigterm_in_jvm)  # called because PySpark uses a `preexec_fn`


def session_conf(
    spark: SparkSettings,
    job: JobSettings,
    jars: Path,
    *,
    more_jars: Sequence[Path] = (),
    properties: Mapping[str, str] | None = None,
    java_options: Sequence[str] = (),
    environment: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, str]:
    users_options = spark.conf.get("spark.driver.extraJavaOptions", "")
    of_all = [f"-D{name}={value}" for name, value in (properties or {}).items()]
    options = [*_java_options(users_options), *of_all, *java_options, users_options]
    is_folder = checkpoint_uri(job.checkpoint).startswith("file:")
    division = divided(job.memory_bytes or USUAL_BYTES)
    conf = {
        **_CONF,
        **(_LOCAL_MASTER if spark.is_local else _CLUSTER),
        **(_LOCAL_CHECKPOINT if is_folder else {}),
        **(_LOCAL_FILES if is_folder and spark.is_local else {}),
        **(settings_of_s3(environment) if is_on_s3(job.checkpoint) else {}),
        **({_UMASK: f"{umask_of(job.readable_by_group):03o}"} if spark.is_local else {}),
        "spark.driver.memory": f"{division.heap_bytes // MIB}m",
        # A packed block has the records of one Arrow batch: in larger ones more superseded commits are
        # dropped early, but all rows wait for Python's answer in the JVM.
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(division.records_at_once),
        **({_OFF_HEAP: str(division.off_heap_bytes)} if spark.is_local else {}),
        STATE_PARTITIONS: str(job.state_partitions),
        **({} if spark.conf.keys() & INTERPRETED.keys() else {**INTERPRETED, _CHOICE_IS_OURS: "true"}),
        **spark.conf,
        **SESSION_CONF,
    }
    return {
        **conf,
        **_connector(conf, [jars], more_jars, is_local=spark.is_local),
        "spark.driver.extraJavaOptions": " ".join(filter(None, options)),
        **({_EXECUTORS_OPTIONS: " ".join([*of_all, conf.get(_EXECUTORS_OPTIONS, "")])} if of_all else {}),
    }


def _connector(
    conf: Mapping[str, str], jars: Sequence[Path], more_jars: Sequence[Path], *, is_local: bool
) -> dict[str, str]:
    """Return the settings with the connector's jars, and a user's jars (of a file system, say) after them.

    Executors on a cluster get copies of the jars in `spark.jars`. On this machine the connector's are on the
    class path of the JVM: nothing is copied, and an archive of classes can contain them. `more_jars` are not:
    no archive would match.
    """
    on_path, copied = (jars, more_jars) if is_local else ((), [*jars, *more_jars])
    settings = (("spark.driver.extraClassPath", ":", on_path), ("spark.jars", ",", copied))
    return {
        name: separator.join(filter(None, [*_jar_files(folders), conf.get(name, "")]))
        for name, separator, folders in settings
        if folders
    }


def _jar_files(folders: Iterable[Path]) -> list[str]:
    return [str(jar) for folder in folders for jar in sorted(folder.glob("*.jar"))]


def _java_options(users_options: str) -> list[str]:
    """Return our options of the driver's JVM, without a collector if the user has chosen one.

    The user's options come later, and so win over the others.
    """
    log4j = (conf_dir() / "log4j2.properties").as_uri()
    chosen = re.search(r"-XX:\+Use\w+GC\b", users_options)
    return [f"-Dlog4j2.configurationFile={log4j}", _COUNTERS, *_COMPILER, *([] if chosen else _COLLECTOR)]
