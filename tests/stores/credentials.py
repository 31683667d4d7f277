"""Credentials that stores refuse."""

from __future__ import annotations

from base64 import b64encode

WRONG = {
    "AWS_SECRET_ACCESS_KEY": "not the right one",
    "AWS_ACCESS_KEY_ID": "KNOBODY",
    "AZURE_STORAGE_ACCOUNT_KEY": b64encode(b"not the right one").decode(),
}
"""Credentials that are refused, by their names."""
