"""``heddle sql-server``."""

from __future__ import annotations

import signal
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heddle.cli import terminal
from heddle.cli.output import telling_errors
from heddle.cli.root import app
from heddle.cli.serve import check_host, placed
from optimizer.errors.diagnostics import HeddleError

if TYPE_CHECKING:
    from heddle.flight.server import AnswersServer, Limits


@app.command(
    "sql-server",
    epilog="Examples: heddle sql-server --warehouse house; "
    "HEDDLE_SERVE_TOKEN=… heddle sql-server --warehouse house --host 0.0.0.0 --certificate tls.crt --key tls.key",
)
def sql_server(
    warehouse: Annotated[
        str | None,
        typer.Option("--warehouse", help="The folder or URL of the tables. Default: HEDDLE_WAREHOUSE, heddle.toml."),
    ] = None,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="The port; 0: any that is free.")] = 8766,
    host: Annotated[str, typer.Option("--host", help="The address. Others than loopback need a token.")] = "127.0.0.1",
    certificate: Annotated[Path | None, typer.Option("--certificate", help="TLS: the certificates, in PEM.")] = None,
    key: Annotated[Path | None, typer.Option("--key", help="TLS: the private key, in PEM.")] = None,
    statements: Annotated[int, typer.Option("--statements", min=1, help="Most statements at a time.")] = 4,
    seconds: Annotated[int, typer.Option("--seconds", min=1, help="Most seconds of a statement.")] = 60,
    rows: Annotated[int, typer.Option("--rows", min=1, help="Most rows of an answer.")] = 1_000_000,
    megabytes: Annotated[int, typer.Option("--memory", min=64, help="Most megabytes of a statement.")] = 1024,
) -> None:
    """Answer SQL to BI tools by Arrow Flight SQL. Every query is a view. Clients can read nothing else, and write
    nothing. They have to send HEDDLE_SERVE_TOKEN. Ctrl-C stops it."""
    from heddle.api.tokens import configured_token
    from spark_jobs.store.settings import settings

    with telling_errors():
        token = configured_token()
        check_host(host, token)
        root, tls = placed(warehouse or settings().warehouse), _tls(certificate, key)
        from heddle.flight.server import Limits

        server = _listening(root, host, port, Limits(statements, seconds, rows, megabytes), token, tls)
        message = announcement_of(root, host, server.port, bool(token), bool(tls))
        terminal.errors.print(message, highlight=False, soft_wrap=True)
        _wait_and_stop(server)


def _wait_and_stop(server: AnswersServer) -> None:
    # Python's signals are not seen inside of the server's own waiting; a job in the background has to see Ctrl-C, too
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with suppress(KeyboardInterrupt):
        threading.Event().wait()
    server.shutdown()


def announcement_of(root: str, host: str, port: int, has_token: bool, has_tls: bool) -> str:
    """Message about the server: its address, and the users who can ask it."""
    shown = f"[{host}]" if ":" in host else host
    users = "whoever has the token" if has_token else "every user of this machine"
    scheme = "grpc+tls" if has_tls else "grpc"
    return f"{scheme}://{shown}:{port} answers SQL over {root} to {users}. Ctrl-C stops it."


def _tls(certificate: Path | None, key: Path | None) -> tuple[bytes, bytes] | None:
    if certificate is None or key is None:
        if certificate is not key:
            raise typer.BadParameter("--certificate and --key go together")
        return None
    return certificate.read_bytes(), key.read_bytes()


def _listening(
    root: str, host: str, port: int, limits: Limits, token: str, tls: tuple[bytes, bytes] | None
) -> AnswersServer:
    """A server that listens. Raises HDL-573 if it cannot, HDL-502 if there is no warehouse."""
    import pyarrow as pa

    from heddle.flight.server import AnswersServer, bound_memory
    from spark_jobs.store.warehouse.warehouse import Warehouse

    warehouse = Warehouse.open(root, create=False)
    shown = f"[{host}]" if ":" in host else host
    try:
        location = f"{'grpc+tls' if tls else 'grpc'}://{shown}:{port}"
        server = AnswersServer(lambda: warehouse, location, limits, token or None, tls)
    except (pa.ArrowException, OSError) as error:
        message = f"cannot listen on {host}, port {port}: {error}"
        raise HeddleError("HDL-573", message, "choose another with --port; 0 takes one that is free") from error
    bound_memory(limits)
    return server
