"""Connect to Kafka: Spark's jars for it, client options from a file, and a check whether a server answers.

Set-up, once (``heddle jars --fetch --kafka``): Spark's own mechanism resolves the jars into a separate folder. Only
sessions that land a topic load them.
"""

from __future__ import annotations

import re
import socket
from contextlib import suppress
from pathlib import Path

from optimizer.errors.diagnostics import HeddleError
from optimizer.errors.redaction import keep_secret
from spark_jobs.engine.configuration import spark_settings
from spark_jobs.engine.session import fetch_package
from spark_jobs.store.settings import settings

PACKAGE = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"

NEEDED = ("spark-sql-kafka", "spark-token-provider-kafka", "kafka-clients", "commons-pool2")
"""Jars of the resolved set that are not in Spark's own distribution."""

PATIENCE_SECONDS = 10.0
"""Seconds that a server may take to accept a connection."""

MOST_BYTES = 65_536
"""Largest size of a file of options in bytes."""

_PLAIN = ("security.protocol", "sasl.mechanism", "client.id", "client.dns.lookup", "isolation.level")
"""Options whose values are no secrets; those of all others are taken for some."""

_SERVER = re.compile(r"(?P<host>[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):(?P<port>[0-9]{1,5})", re.ASCII)


def jars_folder() -> Path:
    """Folder of the jars, separate from Delta's, which every session loads."""
    return settings().jars.parent.parent / "kafka" / "jars"


def fetch() -> Path:
    """Fetch the jars, unless they are there; their folder. Raises HDL-580."""
    folder = jars_folder()
    if not any(folder.glob("*spark-sql-kafka*.jar")):
        fetch_package(PACKAGE, folder)
    return folder


def session_settings() -> dict[str, str]:
    """The settings of a session that reads Kafka. Raises HDL-520 without Delta's jar, HDL-625 without Kafka's.

    Kafka's jars are not on the driver's own class path, as Delta's are: the archive of classes is of that path alone.
    """
    spark_options = spark_settings()
    return spark_options | {"spark.jars": ",".join(filter(None, (spark_options.get("spark.jars"), *needed_jars())))}


def needed_jars() -> list[str]:
    """The jars that Spark reads Kafka with. Raises HDL-625 if one is not there."""
    jars = sorted(str(path) for path in jars_folder().glob("*.jar"))
    needed = [jar for jar in jars if any(name in jar.rpartition("/")[2] for name in NEEDED)]
    if len(needed) < len(NEEDED):
        message = f"the jars that Spark reads Kafka with are not in {jars_folder()}"
        raise HeddleError("HDL-625", message, "run `heddle jars --fetch --kafka`")
    return needed


def options() -> dict[str, str]:
    """The options of Kafka's client that the file ``HEDDLE_KAFKA_OPTIONS`` has, a properties file as Kafka's own tools
    take it; their values are secrets from now on. Raises HDL-626 for a file that cannot be used."""
    path = settings().kafka_options
    if path is None:
        return {}
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise ValueError(f"it has more than {MOST_BYTES:,} bytes")
        text = content.decode("utf-8-sig")
        properties = _properties(text)
    except OSError as error:
        message = f"the file of HEDDLE_KAFKA_OPTIONS cannot be read: {error.strerror}"
        raise HeddleError("HDL-626", message, "name a properties file", file=str(path)) from None
    except ValueError as error:
        reason = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
        message = f"the file of HEDDLE_KAFKA_OPTIONS cannot be used: {reason}"
        raise HeddleError("HDL-626", message, "its lines are: name=value", file=str(path)) from None
    keep_secret({f"secret {name}": value for name, value in properties.items() if name not in _PLAIN})
    return properties


def _properties(text: str) -> dict[str, str]:
    """``name=value`` lines, a backslash at the end of one goes on. Raises ValueError, which repeats no value."""
    properties: dict[str, str] = {}
    joined = re.sub(r"\\\r?\n[ \t]*", "", text)
    for number, line in enumerate(joined.splitlines(), 1):
        line = line.strip()
        if not line or line[0] in "#!":
            continue
        name, mark, value = line.partition("=")
        name = name.strip()
        if not mark or not re.fullmatch(r"[a-z0-9._-]{1,200}", name):
            raise ValueError(f"statement {number} is no name=value")
        if name in properties:
            raise ValueError(f"{name} appears twice")
        if name == "bootstrap.servers":
            raise ValueError("bootstrap.servers is what --servers says")
        properties[name] = value.strip()
    return properties


def check_servers(servers: str) -> None:
    """Raises HDL-626 for what is no list of servers, HDL-628 if none of them takes a connection."""
    parts = [_SERVER.fullmatch(part.strip()) for part in servers.split(",")]
    if not all(part and 0 < int(part["port"]) < 65_536 for part in parts):
        raise HeddleError("HDL-626", "--servers names no servers", "write host:port, several with commas between them")
    for part in filter(None, parts):
        with (
            suppress(OSError),
            socket.create_connection((part["host"].strip("[]"), int(part["port"])), PATIENCE_SECONDS),
        ):
            return
    raise HeddleError(
        "HDL-628", f"no Kafka server takes a connection at {servers}", "is it running, and the port right?"
    )
