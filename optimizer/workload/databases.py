"""URLs of databases: as people write them, and the JDBC form that streams keep."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlencode

from optimizer.errors.diagnostics import HeddleError

SERVERS = {"postgresql": "postgresql", "postgres": "postgresql", "mysql": "mysql", "mariadb": "mariadb"}
"""Schemes of URLs of servers, and the subprotocol that JDBC has for each."""

FILES = ("sqlite", "duckdb")
"""Schemes of URLs of files, which are JDBC's subprotocols too."""

FILE_ENDINGS = {".db": "sqlite", ".sqlite": "sqlite", ".sqlite3": "sqlite", ".duckdb": "duckdb", ".ddb": "duckdb"}
"""Endings of files that are databases. (:func:`kind_of_file` looks at what they begin with.)"""

VARIABLES = {"postgresql": "PGPASSWORD", "mysql": "MYSQL_PWD", "mariadb": "MYSQL_PWD"}
"""The variables in which the programs of a database look for a password."""

_LIBPQ_NAMES = {"application_name": "ApplicationName", "connect_timeout": "connectTimeout"}
"""Parameters of PostgreSQL's own URLs that JDBC calls otherwise."""

_REFERENCE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}", re.ASCII)
_SERVER = re.compile(
    r"(?P<scheme>[a-z]+)://(?:(?P<user>[^/?#]*)@)?(?P<host>[^/?#@]*)(?:/(?P<database>[^?#]*))?(?:\?(?P<query>[^#]*))?"
)
_JDBC_SERVER = re.compile(
    r"jdbc:(?P<kind>[a-z0-9]+)://(?P<host>[^/?;@]*)(?:/(?P<database>[^?;]*))?(?:\?(?P<query>.*))?"
)
_JDBC_FILE = re.compile(r"jdbc:(?P<kind>sqlite|duckdb):(?P<file>[^:?;][^?;]*)")
_SECRET = re.compile(r"secret|passw|pwd|token|key$|credential", re.IGNORECASE)


@dataclass(frozen=True)
class DatabaseUrl:
    """The address of a database.

    - ``kind``: JDBC's subprotocol: ``postgresql``, ``sqlite``, ``oracle``, …
    - ``jdbc``: the JDBC URL, without credentials.
    - ``user``: empty if the URL has none.
    - ``password``: a reference ``${NAME}`` to the environment, or empty.
    - ``file``: of a database in a file, its path.
    - ``host``, ``database``, ``parameters``: of a server whose URL has them.
    """

    kind: str
    jdbc: str
    user: str = ""
    password: str = ""
    file: str = ""
    host: str = ""
    database: str = ""
    parameters: tuple[tuple[str, str], ...] = ()


def is_database_url(text: str) -> bool:
    """Return whether a text is meant to be the URL of a database."""
    return re.match(rf"jdbc:|(?:{'|'.join((*SERVERS, *FILES))}):/", text) is not None


def kind_of_file(name: str, beginning: bytes) -> str | None:
    """The kind of database that a file is, by the bytes that it begins with; None: none that is known here."""
    if beginning.startswith(b"SQLite format 3\x00"):
        return "sqlite"
    if beginning[8:12] == b"DUCK":
        return "duckdb"
    is_empty = not beginning
    return next((kind for ending, kind in FILE_ENDINGS.items() if is_empty and name.lower().endswith(ending)), None)


def parse_database_url(text: str, folder: Path) -> DatabaseUrl:
    """The database of a URL. ``folder``: relative paths of files start there.

    ``sqlite:///shop.db`` is relative, ``sqlite:////data/shop.db`` absolute. Raises HDL-457 for a text that is no such
    URL, HDL-458 for a URL with a password in it, which the message does not repeat.
    """
    if not text.isprintable() or len(text) > 1024:
        raise HeddleError("HDL-457", "the URL of a database is not 1 to 1024 printable characters", _EXAMPLE)
    if text.startswith("jdbc:"):
        return _of_jdbc(text)
    scheme = text.partition(":")[0]
    if scheme in FILES:
        path = text.partition("://")[2]
        if not path.startswith("/") or len(path) < 2 or re.search(r"[?;#:]", path):
            hint = f"{scheme}:///name.{'db' if scheme == 'sqlite' else 'duckdb'}, or with four slashes an absolute path"
            raise HeddleError("HDL-457", "the URL names no file", hint)
        file = str(Path(folder, unquote(path[1:])).resolve())
        return DatabaseUrl(scheme, f"jdbc:{scheme}:{file}", file=file)
    match = _SERVER.fullmatch(text)
    if match is None or scheme not in SERVERS:
        raise HeddleError("HDL-457", "the path is no URL of a database", _EXAMPLE)
    user, _, password = (match["user"] or "").partition(":")
    kind, pairs = SERVERS[scheme], parse_qsl(match["query"] or "", keep_blank_values=True)
    named = {name.lower(): value for name, value in pairs}
    user, password = unquote(user) or named.get("user", ""), unquote(password) or named.get("password", "")
    if (password and not _REFERENCE.fullmatch(password)) or any(
        _SECRET.search(name) and name != "password" for name in named
    ):
        raise _with_secret(kind)
    known = dict(pairs) if kind != "postgresql" else {_LIBPQ_NAMES.get(name, name): value for name, value in pairs}
    parameters = {name: value for name, value in known.items() if name.lower() not in ("user", "password")}
    query = f"?{urlencode(parameters)}" if parameters else ""
    host, database = match["host"], match["database"] or ""
    jdbc = f"jdbc:{kind}://{host}/{database}{query}"
    return DatabaseUrl(kind, jdbc, user, password, "", host, unquote(database), tuple(parameters.items()))


def _of_jdbc(text: str) -> DatabaseUrl:
    kind = re.match(r"jdbc:([a-z0-9]+):", text)
    if kind is None:
        raise HeddleError("HDL-457", "the path is no URL of a database", _EXAMPLE)
    if re.search(r"//[^/]*:[^/]*@|[/:][^/@:]+/[^/@:]+@", text) or (
        re.search(r"[?&;](?:[a-z_-]*(?:secret|password|token|key|sig)[a-z_-]*)=", text, re.IGNORECASE)
    ):
        raise _with_secret(kind[1])
    file, server = _JDBC_FILE.fullmatch(text), _JDBC_SERVER.fullmatch(text)
    if file is not None:
        return DatabaseUrl(kind[1], text, file=file["file"])
    if server is None:
        return DatabaseUrl(kind[1], text)
    parameters = dict(parse_qsl(server["query"] or "", keep_blank_values=True))
    user = parameters.pop("user", "")
    return DatabaseUrl(
        kind[1], text, user, "", "", server["host"], unquote(server["database"] or ""), tuple(parameters.items())
    )


def _with_secret(kind: str) -> HeddleError:
    # never repeated: it would end up in plans, pages and logs
    name = VARIABLES.get(kind, "DATABASE_PASSWORD")
    hint = f"set {name} in the environment, and write ${{{name}}} for the password, or under `options`"
    return HeddleError("HDL-458", "the source's path has a password or a key in it", hint)


_EXAMPLE = "jdbc:postgresql://host/database, postgresql://user@host/database, sqlite:///file.db, duckdb:///file.duckdb"
