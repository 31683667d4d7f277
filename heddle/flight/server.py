"""The Flight SQL server: one statement, one revision, one connection of DuckDB that can do nothing but read answers.

A prepared statement is its text and parameters, and the client keeps both as its handle: a client that goes away leaves
nothing here.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import duckdb
import psutil
import pyarrow as pa
from pyarrow import flight

from heddle.flight.messages import message, opened, unwrapped, wrapped
from heddle.flight.metadata import metadata, schema_of
from optimizer.errors.crashes import crash
from optimizer.errors.diagnostics import Diagnostic, HeddleError
from spark_jobs.results.connect import Question
from spark_jobs.store.warehouse.warehouse import Warehouse

BATCH = 10_000
"""Rows of an answer that are sent at once."""

LONGEST = 1 << 20
"""Characters of a statement."""

BESIDE_MEGABYTES = 1024
"""Memory of the server in addition to what statements may take."""

CHECK_SECONDS = 0.1
"""Time between two looks at whether the client is still there and the statement in time."""

_STATEMENTS = {"CommandStatementQuery", "TicketStatementQuery", "CommandPreparedStatementQuery"}


@dataclass(frozen=True)
class Limits:
    """Limits: ``statements`` at a time, and of each of them ``seconds``, ``rows`` of its answer, and ``megabytes`` of
    memory.
    """

    statements: int = 4
    seconds: int = 60
    rows: int = 1_000_000
    megabytes: int = 1024


class AnswersServer(flight.FlightServerBase):
    """A server of a warehouse's answers that listens once it is made. ``token``: what clients have to say, as a bearer
    token or as a password; None: nothing. ``tls``: certificate and key, in PEM.
    """

    def __init__(
        self,
        warehouse: Callable[[], Warehouse],
        location: str,
        limits: Limits,
        token: str | None = None,
        tls: tuple[bytes, bytes] | None = None,
    ) -> None:
        self._warehouse, self._limits = warehouse, limits
        self._free = threading.BoundedSemaphore(limits.statements)
        security: dict[str, Any] = {"tls_certificates": [flight.CertKeyPair(*tls)]} if tls else {}
        # the handshake of clients that send a user and a password; the middleware judges it
        super().__init__(
            location, auth_handler=_Handshake(), middleware={"token": _TokenCheck(token)} if token else None, **security
        )

    # ------------------------------------------------------------------------------------------- Flight's calls
    def get_flight_info(
        self, context: flight.ServerCallContext, descriptor: flight.FlightDescriptor
    ) -> flight.FlightInfo:
        """Return the columns of a statement or of metadata, and the ticket for the rows."""
        with _told():
            name, command = unwrapped(descriptor.command)
            ticket, schema = descriptor.command, self._schema(context, name, command)
            if name == "CommandStatementQuery":
                handle = _handle(command.query)
                ticket = wrapped(message("TicketStatementQuery", statement_handle=handle))
        return flight.FlightInfo(schema, descriptor, [flight.FlightEndpoint(ticket, [])], -1, -1)

    def get_schema(self, context: flight.ServerCallContext, descriptor: flight.FlightDescriptor) -> flight.SchemaResult:
        """Return the columns of a statement or of metadata."""
        with _told():
            return flight.SchemaResult(self._schema(context, *unwrapped(descriptor.command)))

    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.FlightDataStream:
        """Execute a statement, or read metadata."""
        with _told():
            name, command = unwrapped(ticket.ticket)
            if name in _STATEMENTS:
                text, parameters = _statement(name, command)
                running = self._running(context, text)
                return flight.GeneratorStream(running.begin(parameters), running)
            return flight.RecordBatchStream(metadata(self._warehouse(), name, command))

    def do_put(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.FlightMetadataWriter,
    ) -> None:
        """Bind a prepared statement's parameters: the client gets a handle that holds them."""
        with _told():
            name, command = unwrapped(descriptor.command)
            if name != "CommandPreparedStatementQuery":
                raise HeddleError("HDL-622", f"{name} is not permitted", "SELECT reads answers")
            values = reader.read_all()
            if values.num_rows != 1:
                raise HeddleError("HDL-590", f"{values.num_rows} rows of parameters", "bind one value to each ?")
            statement = opened("HeddleStatement", command.prepared_statement_handle)
            handle = _handle(statement.query, values)
            writer.write(message("DoPutPreparedStatementResult", prepared_statement_handle=handle).SerializeToString())

    def do_action(self, context: flight.ServerCallContext, action: flight.Action) -> Iterator[flight.Result]:
        """Prepare a statement, or close it."""
        with _told():
            if action.type == "ClosePreparedStatement":
                return iter(())
            if action.type != "CreatePreparedStatement":
                raise HeddleError("HDL-590", f"{action.type} is not supported", "statements stand alone here")
            _, request = unwrapped(action.body.to_pybytes())
            schema = self._running(context, request.query).columns([])
            prepared = message(
                "ActionCreatePreparedStatementResult",
                prepared_statement_handle=_handle(request.query),
                dataset_schema=schema.serialize().to_pybytes(),
                parameter_schema=b"",
            )
            return iter([flight.Result(wrapped(prepared))])

    def list_actions(self, context: flight.ServerCallContext) -> list[tuple[str, str]]:
        """Return the actions with their descriptions."""
        return [("CreatePreparedStatement", "Prepare a SELECT"), ("ClosePreparedStatement", "Forget it")]

    # ------------------------------------------------------------------------------------------------ statements
    def _schema(self, context: flight.ServerCallContext, name: str, command: Any) -> pa.Schema:
        if name not in _STATEMENTS:
            return schema_of(name, command)
        text, parameters = _statement(name, command)
        return self._running(context, text).columns(parameters)

    def _running(self, context: flight.ServerCallContext, text: str) -> _Running:
        """A statement in a slot. Raises HDL-589 if none gets free in twice the time that a statement may take."""
        if len(text) > LONGEST:
            raise HeddleError("HDL-590", f"a statement of {len(text):,} characters", f"at most {LONGEST:,}")
        if not self._free.acquire(timeout=2 * self._limits.seconds):
            message = f"{self._limits.statements} statements run already"
            raise HeddleError("HDL-589", message, "ask again; --statements permits more")
        try:
            settings = {"memory_limit": f"{self._limits.megabytes}MB", "temp_directory": ""}
            return _Running(Question(self._warehouse(), text, settings), self._limits, context, self._free.release)
        except BaseException:
            self._free.release()
            raise


class _Running:
    """The batches of a statement that is executed. It ends, and its slot is free, when they are read, when one raises,
    when time is up or the client gone, or with the last reference to it.
    """

    def __init__(
        self,
        question: Question,
        limits: Limits,
        context: flight.ServerCallContext,
        release: Callable[[], None],
    ) -> None:
        self._question, self._limits, self._release = question, limits, release
        self._rows = 0
        self._watch = _Watch(question, time.monotonic() + limits.seconds, context)
        # it has no reference to this
        threading.Thread(target=self._watch.run, name="heddle-statement", daemon=True).start()

    def columns(self, parameters: list[Any]) -> pa.Schema:
        """The columns alone. It ends."""
        with self._guarded():
            schema = self._question.batches(parameters, 1)[0] if parameters else self._question.schema()
        self._end()
        return schema

    def begin(self, parameters: list[Any]) -> pa.Schema:
        """Execute it. The columns of the batches."""
        with self._guarded():
            schema, self._batches = self._question.batches(parameters, BATCH)
        return schema

    def __iter__(self) -> _Running:
        return self

    def __next__(self) -> pa.RecordBatch:
        with _told(), self._guarded():
            batch = next(self._batches, None)
            self._rows += len(batch) if batch is not None else 0
            if self._rows > self._limits.rows:
                hint = "aggregate or add LIMIT; --rows permits more"
                raise HeddleError("HDL-588", f"the answer has more than {self._limits.rows:,} rows", hint)
        if batch is None:
            self._end()
            raise StopIteration
        return batch

    def __del__(self) -> None:
        self._end()

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """End it with any error, and raise the limit that caused the error."""
        try:
            yield
        except BaseException as error:
            self._end()
            if not isinstance(error, HeddleError):
                raise
            if self._watch.late:
                hint = "ask for less time or fewer queries; --seconds permits more"
                raise HeddleError("HDL-588", f"more than {self._limits.seconds} seconds", hint) from error
            if isinstance(error.__cause__, duckdb.OutOfMemoryException):
                hint = "ask for less time or fewer columns; --memory permits more"
                raise HeddleError("HDL-588", f"more than {self._limits.megabytes} MB of memory", hint) from error
            raise

    def _end(self) -> None:
        if self._watch.end():
            self._question.close()
            self._release()


class _Watch:
    """Interruption of a statement that takes too long, or whose client is gone."""

    def __init__(self, question: Question, until: float, context: flight.ServerCallContext) -> None:
        self._question, self._until, self._context = question, until, context
        self._ended = threading.Event()
        # what the context points to ends with the call
        self._looking = threading.Lock()
        self.late = False

    def run(self) -> None:
        """Watch until it ends."""
        while not self._ended.wait(CHECK_SECONDS):
            with self._looking:
                if self._ended.is_set():
                    return
                self.late = time.monotonic() > self._until
                if self.late or self._context.is_cancelled():
                    self._question.interrupt()

    def end(self) -> bool:
        """End it; False if it has ended."""
        with self._looking:
            was_running = not self._ended.is_set()
            self._ended.set()
        return was_running


def _handle(text: str, parameters: pa.Table | None = None) -> bytes:
    """A statement as a client keeps it."""
    values = b""
    if parameters is not None:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, parameters.schema) as stream:
            stream.write_table(parameters)
        values = sink.getvalue().to_pybytes()
    handle: bytes = message("HeddleStatement", query=text, parameters=values).SerializeToString()
    return handle


def _statement(name: str, command: Any) -> tuple[str, list[Any]]:
    """The text of a statement, and the values of its parameters."""
    if name == "CommandStatementQuery":
        return command.query, []
    handle = command.statement_handle if name == "TicketStatementQuery" else command.prepared_statement_handle
    statement = opened("HeddleStatement", handle)
    if not statement.parameters:
        return statement.query, []
    (values,) = pa.ipc.open_stream(statement.parameters).read_all().to_pylist()
    return statement.query, list(values.values())


def bound_memory(limits: Limits) -> None:
    """Bound what this process allocates, on Linux: a single value that a function makes escapes DuckDB's limit."""
    import resource

    used = getattr(psutil.Process().memory_info(), "data", None)
    if used is not None:
        most = used + ((2 * limits.megabytes * limits.statements + BESIDE_MEGABYTES) << 20)
        resource.setrlimit(resource.RLIMIT_DATA, (most, resource.getrlimit(resource.RLIMIT_DATA)[1]))


# ------------------------------------------------------------------------------------------- errors and tokens
@contextmanager
def _told() -> Iterator[None]:
    """Raise errors as a client sees them: the diagnostic, and nothing of this process. Flight sends errors of its own
    kinds without a traceback.
    """
    try:
        yield
    except HeddleError as error:
        kind = {"HDL-588": flight.FlightCancelledError, "HDL-589": flight.FlightUnavailableError}
        raise kind.get(error.diagnostic.code, flight.FlightServerError)(str(error.diagnostic)) from None
    except Exception as error:
        sys.stderr.write(f"{crash(error)}\n")
        raise flight.FlightInternalError("error HDL-900 the server failed; its output says why") from None


class _Handshake(flight.ServerAuthHandler):
    """Handshake that every client passes: the headers of each call decide."""

    def authenticate(self, outgoing: Any, incoming: Any) -> None:
        pass

    def is_valid(self, token: bytes) -> str:
        return ""


class _TokenCheck(flight.ServerMiddlewareFactory):
    """Check that a call has the token: ``Authorization: Bearer token``, or ``Basic`` with it as the password."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token

    def start_call(self, info: flight.CallInfo, headers: dict[str, list[str | bytes]]) -> _SayToken:
        for name, values in headers.items():
            if name.lower() == "authorization" and any(self._is_valid(str(value)) for value in values):
                return _SayToken(self._token)
        raise flight.FlightUnauthenticatedError(str(Diagnostic("HDL-587", "the token is missing or wrong")))

    def _is_valid(self, header: str) -> bool:
        scheme, _, given = header.partition(" ")
        if scheme.lower() == "basic":
            try:
                # Go's client leaves the padding out
                given = base64.b64decode(given + "=" * (-len(given) % 4), validate=True).decode().partition(":")[2]
            except (binascii.Error, UnicodeDecodeError):
                return False
        return hmac.compare_digest(given.encode(), self._token.encode())


class _SayToken(flight.ServerMiddleware):
    """Header with the token, for the next calls of a client that sent it as a password."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token

    def sending_headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self._token}"}
