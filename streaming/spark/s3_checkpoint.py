"""A checkpoint on S3: the settings of Hadoop's file system for it, and a first look that says within seconds
whether the store can be used."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from streaming.model.errors import OffsetlakeError

_SETTINGS: Final[Mapping[str, str]] = {
    # Spark's default there, by name: this manager reports every write that failed. See docs/decisions/0038.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager"
    ),
    # Settings of the user, then the sources of credentials that delta-rs has for the tables.
    "spark.hadoop.fs.s3a.aws.credentials.provider": (
        "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider,"
        "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider,"
        "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"
    ),
    "spark.hadoop.fs.s3a.path.style.access": "true",  # as delta-rs does
    # Data waits for its upload in memory, in parts of this size: files would be readable by other users.
    "spark.hadoop.fs.s3a.fast.upload.buffer": "bytebuffer",
    "spark.hadoop.fs.s3a.multipart.size": "8M",
    "spark.hadoop.fs.s3a.input.stream.type": "classic",  # the default has a cache, for large objects
}

_OF_ENVIRONMENT: Final = (
    ("AWS_ENDPOINT_URL", "spark.hadoop.fs.s3a.endpoint"),
    ("AWS_DEFAULT_REGION", "spark.hadoop.fs.s3a.endpoint.region"),
    ("AWS_REGION", "spark.hadoop.fs.s3a.endpoint.region"),
)
"""Variables that Hadoop does not read, and their settings; of two for the same setting the last one wins."""

_QUICK: Final[Mapping[str, str]] = {
    "fs.s3a.attempts.maximum": "3",
    "fs.s3a.retry.limit": "0",
    "fs.s3a.retry.throttle.limit": "0",
    "fs.s3a.connection.establish.timeout": "15s",
    "fs.s3a.connection.timeout": "15s",
    "fs.s3a.connection.request.timeout": "15s",
    "fs.s3a.connection.acquisition.timeout": "15s",
}
"""Limits of the first look; by default Hadoop retries for minutes. It raises shorter times to 15 s."""

_WHERE: Final = "docs/operations.md#checkpoints-on-s3"
_ADVICE: Final = (
    (r"NoSuchBucket|UnknownStoreException", "Create the bucket, or check --checkpoint"),
    (r"NoAuthWithAWS", "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment"),
    (r"ExpiredToken", "Renew the credentials, which have expired"),
    (
        r"InvalidAccessKeyId|SignatureDoesNotMatch|InvalidToken",
        "Check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, which the store refuses",
    ),
    (r"AWSRedirect|AuthorizationHeaderMalformed", "Set AWS_REGION to the region of the bucket"),
    (r"AccessDenied", "Grant the user the permissions on the bucket"),
    (r"AWSServiceThrottled|AWSStatus5", "Try again later: the store is overloaded or down"),
    (
        r"ConnectException|UnknownHost|NoRouteToHost|Timeout|SSL",
        "Check the network, and AWS_ENDPOINT_URL: the store did not answer",
    ),
)
"""What to do, by the classes and messages of the errors; the first that fits."""

_LEFT_OUT: Final = re.compile(r" \((?:Service: |SDK Attempt Count: )[^)]*\)|\b(?:[a-z][a-z0-9]*\.)+(?=[A-Z])")
"""Numbers of requests, and the packages of classes."""

_SHOWN: Final = 500
"""Characters of an error: without credentials the AWS library lists everything that it has tried."""


class CheckpointUnreachableError(OffsetlakeError):
    """The store of the checkpoint refused access or could not be reached."""


def is_on_s3(path: str) -> bool:
    """Whether a checkpoint is on S3, which requires Hadoop's module for it."""
    return path.startswith("s3a://")


def settings_of_s3(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a session whose checkpoint is on S3, without keys: those of the environment are
    passed on to executors by Spark itself."""
    given = {setting: environment[name] for name, setting in _OF_ENVIRONMENT if environment.get(name)}
    return {**_SETTINGS, **given}


def refuse_unusable(spark: SparkSession, path: str) -> None:
    """List a checkpoint on S3 once, whether it exists or not, with short limits.

    Raises `CheckpointUnreachableError` if the store refuses or does not answer.
    """
    context: Any = spark.sparkContext
    jvm = context._jvm
    conf = jvm.org.apache.hadoop.conf.Configuration(context._jsc.hadoopConfiguration())
    for name, value in _QUICK.items():
        conf.set(name, value)
    place = jvm.org.apache.hadoop.fs.Path(path)
    try:
        files = jvm.org.apache.hadoop.fs.FileSystem.newInstance(place.toUri(), conf)
        try:
            files.listStatus(place)
        finally:
            files.close()
    except Py4JJavaError as error:
        thrown: Any = error.java_exception
        if thrown.getClass().getSimpleName() == "FileNotFoundException":  # a new checkpoint
            return
        raise CheckpointUnreachableError(_told(path, thrown)) from error


def _told(path: str, thrown: Any) -> str:
    chain = [str(one.toString()) for one in _with_causes(thrown)]
    advice = next((text for pattern, text in _ADVICE if re.search(pattern, "\n".join(chain))), "Check it")
    found = _LEFT_OUT.sub("", chain[0].splitlines()[0]).rstrip(".")[:_SHOWN]
    return f"checkpoint {path}: expected a store that can be used, found {found}. {advice} ({_WHERE})."


def _with_causes(thrown: Any) -> Iterator[Any]:
    while thrown is not None:
        yield thrown
        thrown = thrown.getCause()
