"""What holds for the Python workers that Spark starts."""

import gc

from pyspark import TaskContext


def spare_modules_from_collection() -> None:
    """Leave the present objects of this worker, those of its modules, out of garbage collections to come.

    PySpark's workers collect garbage after every task. With the 80,000 objects of pandas, pyarrow and
    PySpark that takes 0.05 s and more, as long as a small task itself. To be called within a task, where it
    acts once; elsewhere it does nothing.
    """
    if TaskContext.get() is not None and not gc.get_freeze_count():
        gc.freeze()
