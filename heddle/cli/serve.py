"""``heddle serve``."""

from __future__ import annotations

import socket
from contextlib import suppress
from ipaddress import ip_address
from typing import TYPE_CHECKING, Annotated

import typer

from heddle.cli import terminal
from heddle.cli.output import telling_errors
from heddle.cli.root import app
from optimizer.errors.diagnostics import HeddleError
from optimizer.errors.installing import install_hint

if TYPE_CHECKING:
    from fastapi import FastAPI


@app.command(epilog="Example: heddle serve --warehouse var/warehouse")
def serve(
    warehouse: Annotated[
        str | None,
        typer.Option("--warehouse", help="The folder or URL of the tables. Default: HEDDLE_WAREHOUSE, heddle.toml."),
    ] = None,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="The port; 0: any that is free.")] = 8765,
    host: Annotated[
        str, typer.Option("--host", help="The address to listen on; any but loopback needs HEDDLE_SERVE_TOKEN.")
    ] = "127.0.0.1",
) -> None:
    """Serve pages and an API, without Airflow. Answers are JSON and Arrow (/api/v1). It only reads."""
    from heddle.api.tokens import configured_token
    from spark_jobs.store.settings import settings

    with telling_errors():
        token = configured_token()
        check_host(host, token)
        root = placed(warehouse or settings().warehouse)
        app = pages_of(root, host, token)
        with listening(host, port) as place:
            terminal.errors.print(announcement(root, host, place.getsockname()[1], token), highlight=False)
            serve_until_stopped(app, place)


def placed(warehouse: str) -> str:
    """A warehouse as it is known wherever the server works. Raises HDL-574 or HDL-575 for a URL that is none."""
    from spark_jobs.store.storage import Place

    place = Place.of(warehouse)
    return str(place.local().absolute()) if place.is_local else str(place)


def check_host(host: str, token: str) -> None:
    """Raises HDL-572 for an address that other machines may reach, unless requests have to carry a token."""
    if host == "localhost" or token:
        return
    with suppress(ValueError):
        if ip_address(host).is_loopback:
            return
    hint = "leave --host out, or set HEDDLE_SERVE_TOKEN or HEDDLE_SERVE_TOKEN_FILE"
    raise HeddleError("HDL-572", f"other machines may reach {host}, and there is no token", hint)


def pages_of(root: str, host: str, token: str) -> FastAPI:
    """The app of a warehouse's pages and its API; ``token``: what requests have to carry, empty: nothing.

    Raises HDL-571 if what serves them is not installed.
    """
    from spark_jobs.store.settings import settings

    try:
        import uvicorn  # noqa: F401
        from fastapi.middleware.trustedhost import TrustedHostMiddleware

        from heddle.api.access import TokenGuard
        from heddle.api.app import PLACE, build_api
        from heddle.pages.app import build_app
    except ImportError as error:
        message = f"{error.name} is not installed, which the pages are served by"
        raise HeddleError("HDL-571", message, install_hint("serve")) from None
    app = build_app(lambda: root)
    app.mount(PLACE, build_api(lambda: root, token, settings().serve_memory.bytes))
    if token:
        app.add_middleware(TokenGuard, token=token)
    else:
        # a page from elsewhere whose name leads here would be read as one of ours
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost", "[::1]", host])
    return app


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens. Raises HDL-573 if there can be none."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        place = socket.socket(family, socket.SOCK_STREAM)
        place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        place.bind(address)
        # from now on requests wait until they are answered
        place.listen()
    except OSError as error:
        message = f"cannot listen on {host}, port {port}: {error.strerror or error}"
        raise HeddleError("HDL-573", message, "choose another with --port; 0 takes one that is free") from error
    return place


def announcement(root: str, host: str, port: int, token: str) -> str:
    """Message about the server: its address, and the users who can see it."""
    shown = f"[{host}]" if ":" in host else host
    who = "Requests need the token" if token else "No authentication: every user of this machine can read it"
    return f"http://{shown}:{port}/answers shows {root}. {who}. Ctrl-C stops it."


def serve_until_stopped(app: FastAPI, place: socket.socket) -> None:
    """Serve until the process gets a signal to stop."""
    import uvicorn

    from heddle.pages.connections import server_config

    # it ends its requests first, and passes the signal on
    with suppress(KeyboardInterrupt):
        uvicorn.Server(server_config(app)).run([place])
