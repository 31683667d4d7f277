"""The jars that Spark needs and its distribution does not have."""

from __future__ import annotations

from pathlib import Path

from spark_jobs.engine.configuration import delta_jars
from spark_jobs.engine.session import fetch_jars
from spark_jobs.store.settings import settings
from spark_jobs.streams.landing import kafka


def spark_jars(fetch: bool, for_kafka: bool) -> Path:
    """Return the folder of Delta's jars, or of those that Spark reads Kafka with.

    ``fetch``: fetch what is missing. Otherwise raises HDL-520 without Delta's jar, HDL-625 without Kafka's. Raises as
    :func:`spark_jobs.engine.session.fetch_jars`.
    """
    if fetch:
        return kafka.fetch() if for_kafka else fetch_jars()
    if for_kafka:
        kafka.needed_jars()
        return kafka.jars_folder()
    delta_jars(settings())
    return settings().jars
