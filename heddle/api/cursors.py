"""Cursors: where the next page of a listing begins, and in which version of the results, signed.

A version from before an erasure has what was erased, so nobody but the server may say which one is read.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from dataclasses import dataclass

from optimizer.errors.diagnostics import HeddleError

SIGNATURE = 16
"""Bytes of a signature."""


@dataclass(frozen=True)
class Cursor:
    """The version of the results, the definition and the request that a listing is of (digests), and where its next
    page begins (:class:`spark_jobs.results.snapshot.Resume`)."""

    version: int
    definition: str
    request: str
    after: int
    rows: int

    def text(self, key: bytes) -> str:
        """The cursor as clients get it."""
        fields = json.dumps([self.version, self.definition, self.request, self.after, self.rows]).encode()
        return base64.urlsafe_b64encode(_signature(fields, key) + fields).decode().rstrip("=")

    @classmethod
    def of(cls, text: str, key: bytes) -> Cursor:
        """The cursor that a server with this key has given. Raises HDL-631 for any other text."""
        if re.fullmatch(r"[A-Za-z0-9_-]{1,1000}", text, re.ASCII):
            try:
                signed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
            except ValueError:
                signed = b""
            signature, fields = signed[:SIGNATURE], signed[SIGNATURE:]
            if hmac.compare_digest(signature, _signature(fields, key)):
                return cls(*json.loads(fields))
        raise HeddleError("HDL-631", "the cursor is none that this server gave", "take `next` of the page before")


def signing_key(token: str, table: str) -> bytes:
    """The key for cursors over a table (its id): the same for all servers of a warehouse that have the same token."""
    return hashlib.sha256(f"cursors\n{token}\n{table}".encode()).digest()


def _signature(fields: bytes, key: bytes) -> bytes:
    return hmac.new(key, fields, hashlib.sha256).digest()[:SIGNATURE]
