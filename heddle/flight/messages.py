"""Messages of Arrow Flight SQL (FlightSql.proto) that the server reads and writes, and the schemas of its metadata.

Arrow's Python package has the RPC layer, but no Flight SQL messages. Those that are needed hold nothing but scalars, so
they are declared here and made by protobuf.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.any_pb2 import Any as Envelope
from google.protobuf.message import DecodeError, Message

from optimizer.errors.diagnostics import HeddleError

PACKAGE = "arrow.flight.protocol.sql"

_KEYS = "string catalog, string db_schema, string table"

_FIELDS = {
    "CommandStatementQuery": "string query, bytes transaction_id",
    "CommandPreparedStatementQuery": "bytes prepared_statement_handle",
    "TicketStatementQuery": "bytes statement_handle",
    "CommandGetSqlInfo": "repeated uint32 info",
    "CommandGetXdbcTypeInfo": "int32 data_type",
    "CommandGetCatalogs": "",
    "CommandGetDbSchemas": "string catalog, string db_schema_filter_pattern",
    "CommandGetTables": (
        "string catalog, string db_schema_filter_pattern, string table_name_filter_pattern, "
        "repeated string table_types, bool include_schema"
    ),
    "CommandGetTableTypes": "",
    "CommandGetPrimaryKeys": _KEYS,
    "CommandGetExportedKeys": _KEYS,
    "CommandGetImportedKeys": _KEYS,
    "CommandGetCrossReference": (
        "string pk_catalog, string pk_db_schema, string pk_table, "
        "string fk_catalog, string fk_db_schema, string fk_table"
    ),
    "ActionCreatePreparedStatementRequest": "string query, bytes transaction_id",
    "ActionCreatePreparedStatementResult": (
        "bytes prepared_statement_handle, bytes dataset_schema, bytes parameter_schema"
    ),
    "ActionClosePreparedStatementRequest": "bytes prepared_statement_handle",
    "DoPutPreparedStatementResult": "bytes prepared_statement_handle",
    # ours, in a namespace of its own by its name: what a handle holds, so that the server keeps nothing
    "HeddleStatement": "string query, bytes parameters",
}
"""The fields of each message, numbered from 1 in this order."""


def _made() -> dict[str, type[Message]]:
    """A class for each message. Proto2 writes the same bytes as proto3, and knows of every field whether it is set."""
    file = descriptor_pb2.FileDescriptorProto(name="heddle_flight_sql.proto", package=PACKAGE, syntax="proto2")
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for number, field in enumerate(filter(None, fields.split(", ")), 1):
            *repeated, kind, field_name = field.split()
            message.field.add(
                name=field_name,
                number=number,
                type=getattr(descriptor_pb2.FieldDescriptorProto, f"TYPE_{kind.upper()}"),
                label=descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED
                if repeated
                else descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL,
            )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name in _FIELDS}


_CLASSES = _made()


def message(name: str, **fields: Any) -> Any:
    """A message with some fields set."""
    return _CLASSES[name](**fields)


def opened(name: str, data: bytes) -> Any:
    """The message of one kind in some bytes. Raises HDL-590."""
    try:
        return _CLASSES[name].FromString(data)
    except DecodeError as error:
        raise HeddleError("HDL-590", f"what a client sent is no {name}", "use a client of Arrow Flight SQL") from error


def wrapped(content: Any) -> bytes:
    """A message with the name of its kind."""
    return Envelope(
        type_url=f"type.googleapis.com/{content.DESCRIPTOR.full_name}", value=content.SerializeToString()
    ).SerializeToString()


def unwrapped(data: bytes) -> tuple[str, Any]:
    """The kind of a message, and the message. Raises HDL-590 for one that is not known here."""
    try:
        envelope = Envelope.FromString(data)
    except DecodeError as error:
        raise HeddleError(
            "HDL-590", "what a client sent is no Flight SQL", "use a client of Arrow Flight SQL"
        ) from error
    package, _, name = envelope.type_url.rpartition("/")[2].rpartition(".")
    if package != PACKAGE or name not in _FIELDS:
        hint = "this server answers SELECT, and what tables there are"
        raise HeddleError("HDL-590", f"{name or 'such a request'} is not supported", hint)
    return name, opened(name, envelope.value)


# -------------------------------------------------------------------------------------- schemas of metadata
def _schema(text: str) -> pa.Schema:
    """Columns as ``name type``, with ``!`` behind those that are never null."""
    types: dict[str, Any] = {
        "text": pa.string(),
        "int": pa.int32(),
        "bool": pa.bool_(),
        "byte": pa.uint8(),
        "bytes": pa.binary(),
        "texts": pa.list_(pa.field("item", pa.string(), nullable=False)),
    }
    pairs = (column.split() for column in text.split(", "))
    return pa.schema([pa.field(name, types[kind.rstrip("!")], not kind.endswith("!")) for name, kind in pairs])


_REFERENCE = _schema(
    "pk_catalog_name text, pk_db_schema_name text, pk_table_name text!, pk_column_name text!, "
    "fk_catalog_name text, fk_db_schema_name text, fk_table_name text!, fk_column_name text!, "
    "key_sequence int!, fk_key_name text, pk_key_name text, update_rule byte!, delete_rule byte!"
)

INFO_VALUE = pa.dense_union(
    [
        pa.field("string_value", pa.string()),
        pa.field("bool_value", pa.bool_()),
        pa.field("bigint_value", pa.int64()),
        pa.field("int32_bitmask", pa.int32()),
        pa.field("string_list", pa.list_(pa.string())),
        pa.field("int32_to_int32_list_map", pa.map_(pa.int32(), pa.list_(pa.int32()))),
    ]
)

SCHEMAS: dict[str, pa.Schema] = {
    "CommandGetSqlInfo": pa.schema([pa.field("info_name", pa.uint32(), False), pa.field("value", INFO_VALUE)]),
    "CommandGetXdbcTypeInfo": _schema(
        "type_name text!, data_type int!, column_size int, literal_prefix text, literal_suffix text, "
        "create_params texts, nullable int!, case_sensitive bool!, searchable int!, unsigned_attribute bool, "
        "fixed_prec_scale bool!, auto_increment bool, local_type_name text, minimum_scale int, maximum_scale int, "
        "sql_data_type int!, datetime_subcode int, num_prec_radix int, interval_precision int"
    ),
    "CommandGetCatalogs": _schema("catalog_name text!"),
    "CommandGetDbSchemas": _schema("catalog_name text, db_schema_name text!"),
    "CommandGetTables": _schema("catalog_name text, db_schema_name text, table_name text!, table_type text!"),
    "CommandGetTableTypes": _schema("table_type text!"),
    "CommandGetPrimaryKeys": _schema(
        "catalog_name text, db_schema_name text, table_name text!, column_name text!, key_name text, key_sequence int!"
    ),
    "CommandGetExportedKeys": _REFERENCE,
    "CommandGetImportedKeys": _REFERENCE,
    "CommandGetCrossReference": _REFERENCE,
}
"""The columns of the answer to each request for metadata."""
