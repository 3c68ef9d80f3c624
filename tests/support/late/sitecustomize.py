"""Lets the Python worker that Spark starts with each query come too late, once.

Python imports this by itself when the folder is on PYTHONPATH. `LATE_WORKER` names a file that is written
when it has come late. So it is on a machine that has no processor time left, only sooner.
"""

import os
import sys
import time
from pathlib import Path

SPARK_WAITS_S = 10.0  # PythonWorkerFactory.createSimpleWorker

if "pyspark.sql.streaming.transform_with_state_driver_worker" in sys.orig_argv:
    was_late = Path(os.environ["LATE_WORKER"])
    if not was_late.exists():
        was_late.touch()
        time.sleep(SPARK_WAITS_S + 2)
