"""The README's table of aggregates is what the code declares: a new one has to be told, an old one kept true."""

from __future__ import annotations

from pathlib import Path

from optimizer.aggregates import AGGREGATES, Aggregate

README = Path(__file__).resolve().parents[1] / "README.md"

CALLS = {
    "value": "{name}(x)",
    "value+by": "{name}(x, y)",
    "value+time": "{name}(x)",
    "value+fraction": "{name}(x, φ)",
    "value+k": "{name}(x, k)",
}


SKETCHES = {(): "", ("registers",): "HyperLogLog", ("quantiles",): "spaced ranks", ("frequent",): "frequent items"}


def rows() -> list[str]:
    """A row for each meaning: the names that have it as they are called, what they take, their class and sketch."""
    declared: dict[str, list[Aggregate]] = {}
    for aggregate in AGGREGATES.values():
        declared.setdefault(aggregate.meaning, []).append(aggregate)
    found = []
    for meaning, aliases in declared.items():
        first = aliases[0]
        calls = " ".join(f"`{CALLS[alias.signature].format(name=alias.name)}`" for alias in aliases)
        found.append(f"| {calls} | {meaning} | {first.takes} | {first.klass} | {SKETCHES[first.sketch]} |")
    return found


def test_the_readme_lists_every_aggregate() -> None:
    text = README.read_text()
    missing = [row for row in rows() if row not in text]
    assert not missing, "put these rows into the README's table of aggregates:\n" + "\n".join(missing)
