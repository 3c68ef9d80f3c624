"""A standalone Spark cluster on this machine: a master, and workers that can be killed with all they run.

The programs are those inside PySpark. Workers start executors, and these start Python, which finds our
packages on the PYTHONPATH of the worker, as it would where they are installed.
"""

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyspark
from bombs.sitecustomize import kill_session
from kafka_clients import wait_until

from streaming.demo.local_broker import free_ports

ROOT: Final = Path(__file__).parents[2]
HOST: Final = "127.0.0.1"
DRIVER: Final = "127.0.0.3"
"""Where executors look for the driver: not where it listens when Spark's master is local."""

_DEPLOY: Final = "org.apache.spark.deploy"
_LIMIT_S: Final = 120.0


@dataclass
class SparkCluster:
    """The running cluster; see `start_spark_cluster`."""

    directory: Path
    port: int
    ui_port: int
    environment: Mapping[str, str] = field(default_factory=dict)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """What `--master` takes."""
        return f"spark://{HOST}:{self.port}"

    def start_master(self) -> None:
        """Start the master, and wait until it answers."""
        ports = ("--port", str(self.port), "--webui-port", str(self.ui_port))
        self._start("master", "master.Master", *ports)
        wait_until(self._answers, "Spark's master", timeout_s=_LIMIT_S)

    def start_worker(self, name: str) -> None:
        """Start a worker of one core, and wait until the master knows it."""
        known = len(self.alive())
        options = ("--cores", "1", "--memory", "1g", "--work-dir", str(self.directory / name))
        self._start(name, "worker.Worker", "--webui-port", "0", *options, self.url)
        wait_until(lambda: len(self.alive()) > known, f"worker {name}", timeout_s=_LIMIT_S)

    def alive(self) -> list[dict[str, Any]]:
        """Return the workers that the master takes for alive."""
        return [worker for worker in self._state()["workers"] if worker["state"] == "ALIVE"]

    def has_worked(self, name: str) -> bool:
        """Tell whether an executor of the worker has finished a task."""
        logs = (self.directory / name).glob("app-*/*/stderr")
        return any("Executor: Finished task" in log.read_text() for log in logs)

    def kill(self, name: str) -> None:
        """Kill -9 a process of the cluster with all that it has started, as if its machine were gone."""
        process = self.processes.pop(name)
        kill_session(process.pid)
        process.wait()

    def _start(self, name: str, program: str, *options: str) -> None:
        home = Path(pyspark.__file__).parent
        environment = {**os.environ, "SPARK_HOME": str(home), "PYTHONPATH": str(ROOT)}
        with (self.directory / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [home / "bin" / "spark-class", f"{_DEPLOY}.{program}", "--host", HOST, *options],
                cwd=self.directory,
                env={**environment, **self.environment, "SPARK_LOCAL_IP": HOST},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _answers(self) -> bool:
        try:
            return bool(self._state()["status"] == "ALIVE")
        except (OSError, json.JSONDecodeError):  # an empty body while its UI starts
            return False

    def _state(self) -> Any:
        with urllib.request.urlopen(f"http://{HOST}:{self.ui_port}/json/", timeout=10) as answer:
            return json.load(answer)


@contextmanager
def start_spark_cluster(
    directory: Path, *workers: str, environment: Mapping[str, str] | None = None
) -> Iterator[SparkCluster]:
    """Run a master and workers with these names, and variables of an environment, until the end of the
    block."""
    port, ui_port = free_ports(2)
    cluster = SparkCluster(directory, port, ui_port, environment or {})
    try:
        cluster.start_master()
        for name in workers:
            cluster.start_worker(name)
        yield cluster
    finally:
        for name in list(cluster.processes):
            cluster.kill(name)


def settings(python: str = sys.executable) -> str:
    """Return what a job on this cluster needs beside its master (`offsetlake run --config`)."""
    return f"""
[spark.conf]
"spark.driver.host" = "{DRIVER}"
"spark.executor.memory" = "512m"
"spark.default.parallelism" = 2
"spark.pyspark.python" = "{python}"
"""
