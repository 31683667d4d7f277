"""Files of a stream's origin in a store."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from optimizer.errors.diagnostics import HeddleError
from spark_jobs.streams.copies import origins


def test_a_bucket_that_is_not_there_is_reported_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    root = SimpleNamespace(is_local=False, listed=lambda recursive: [], info=lambda: None)
    buckets: list[str] = []

    def check_bucket(place: Any) -> None:
        if not buckets:
            raise HeddleError("HDL-576", "there is no such bucket", "make it")

    monkeypatch.setattr(origins, "Place", SimpleNamespace(of=lambda path: root))
    monkeypatch.setattr(origins, "check_place", lambda *arguments: None)
    monkeypatch.setattr(origins, "check_bucket", check_bucket)
    monkeypatch.setattr(origins, "read_names", lambda *arguments: SimpleNamespace(names=[]))
    stream: Any = SimpleNamespace(name="trades")
    origin: Any = SimpleNamespace(path="s3://bucket/trades")
    with pytest.raises(HeddleError, match="HDL-576"):
        origins._listed(stream, origin)
    buckets.append("bucket")
    with pytest.raises(HeddleError, match="HDL-401"):
        origins._listed(stream, origin)
