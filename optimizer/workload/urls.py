"""URLs of object stores, as texts: nothing is opened here."""

from __future__ import annotations

import re

from optimizer.errors.diagnostics import HeddleError
from optimizer.errors.redaction import redacted

SCHEMES = {"s3": "s3", "s3a": "s3", "abfss": "abfss", "abfs": "abfss", "gs": "gs", "gcs": "gs"}
"""The schemes of stores, each with the one that it is known by."""

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(/*)(.*)", re.DOTALL)

_BUCKET = {
    "s3": re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]"),
    "gs": re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]"),
    # the hosts that delta-rs knows: those of other clouds are endpoints
    "abfss": re.compile(
        r"[a-z0-9$][a-z0-9-]{1,62}@[a-z0-9]{3,24}\.(?:dfs|blob)\.(?:core\.windows\.net|fabric\.microsoft\.com)"
    ),
}

_EXAMPLES = {
    "s3": "s3://bucket/heddle",
    "gs": "gs://bucket/heddle",
    "abfss": "abfss://container@account.dfs.core.windows.net/heddle",
}


def scheme_of(text: str) -> str | None:
    """The scheme of a URL; None for a path. A letter and a colon are none: they may begin a name."""
    match = _URL.fullmatch(text)
    if match is None or (not match[2] and match[1].lower() not in SCHEMES) or len(match[1]) < 2:
        return None
    return match[1].lower()


def normalised(text: str) -> str:
    """Normalise a URL: no slash at its end, one scheme for all its synonyms.

    Raises HDL-574, and HDL-575 for a URL that contains credentials.
    """
    shown = redacted(text)
    match = _URL.fullmatch(text)
    assert match is not None
    scheme = match[1].lower()
    known = SCHEMES.get(scheme)
    if known is None:
        hint = f"name a folder, or one of {', '.join(_EXAMPLES.values())}"
        raise HeddleError("HDL-574", f"{shown} is of a kind that is not known ({scheme}:)", hint)
    bucket, _, path = match[3].strip("/").partition("/")
    example = _EXAMPLES[known]
    if match[2] != "//":
        raise HeddleError("HDL-574", f"{shown} has not two slashes behind its colon", f"write it as {example}")
    if ":" in bucket or (known != "abfss" and "@" in bucket):
        hint = "credentials come from the environment or the instance: AWS_…, AZURE_…, GOOGLE_…"
        raise HeddleError("HDL-575", f"the {known} URL of {_hidden(bucket)} has credentials in it", hint)
    if _BUCKET[known].fullmatch(bucket) is None:
        account_note = ", wherever the account is (AZURE_STORAGE_ENDPOINT says that)" if known == "abfss" else ""
        raise HeddleError("HDL-574", f"{shown} does not name a bucket", f"write it as {example}{account_note}")
    if "?" in path or "#" in path:
        raise HeddleError("HDL-574", f"{shown} has a ? or # in it", "regions and endpoints come from the environment")
    parts = [part for part in path.split("/") if part]
    if any(part in (".", "..") for part in parts):
        raise HeddleError("HDL-574", f"{shown} has . or .. in it", f"write it as {example}")
    if known == "abfss":
        bucket = bucket.replace(".blob.", ".dfs.")
    return "/".join([f"{known}://{bucket}", *parts])


def _hidden(bucket: str) -> str:
    return bucket.rpartition("@")[2] or "a store"


def lies_in(url: str, folder: str) -> bool:
    """Return whether a URL is another one or lies below it, both as :func:`normalised` returns them."""
    return ".." not in url.split("/") and (url == folder or url.startswith(f"{folder}/"))


def split_places(text: str, separator: str = ":") -> tuple[str, ...]:
    """The folders and URLs of a list. The colons of a URL separate none, nor does that of credentials in it, so that
    :func:`normalised` sees them."""
    places: list[str] = []
    for part in text.split(separator):
        before = places[-1] if places else ""
        has_scheme = before.lower() in SCHEMES and part.startswith("//")
        bucket = before.partition("://")[2] if scheme_of(before) in SCHEMES else "/"
        if separator == ":" and (has_scheme or ("/" not in bucket and "@" in part.partition("/")[0])):
            places[-1] = f"{before}:{part}"
        else:
            places.append(part)
    return tuple(filter(None, places))
