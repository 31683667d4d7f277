"""The token that requests carry where others than this machine's users may send some."""

from __future__ import annotations

import re
from pathlib import Path

from optimizer.errors.diagnostics import HeddleError
from optimizer.errors.redaction import keep_secret
from spark_jobs.store.settings import settings

MOST_BYTES = 4096
"""Bytes of a token's file that are read."""


def configured_token() -> str:
    """The token of HEDDLE_SERVE_TOKEN, or else of the file of HEDDLE_SERVE_TOKEN_FILE; empty: there is none.

    Raises HDL-634 if it cannot be used, or if its file cannot be read.
    """
    configured = settings()
    token, file = configured.serve_token, configured.serve_token_file
    if not token and file is not None:
        token = _content(file)
    elif not token:
        return ""
    if not re.fullmatch(r"[!-~]{16,512}", token, re.ASCII):
        message = f"the token has {len(token)} characters, or others than printable ones of ASCII"
        raise HeddleError("HDL-634", message, "take 16 to 512, such as those of `openssl rand -hex 32`")
    keep_secret({"token": token})
    return token


def _content(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return opened.read(MOST_BYTES).decode("ascii", "replace").strip()
    except OSError as error:
        message = f"the file of HEDDLE_SERVE_TOKEN_FILE cannot be read: {error.strerror or error}"
        raise HeddleError("HDL-634", message, "name a file that this user may read") from error
