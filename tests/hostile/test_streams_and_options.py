"""Attacks by streams.yaml, by the DAG's Params and by options of the command line."""

from __future__ import annotations

import os
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from optimizer.errors.diagnostics import HeddleError
from optimizer.workload.instants import parse_duration
from optimizer.workload.streams import NODES, load_streams
from spark_jobs.pipeline.planning.refresh import refresh_plan
from spark_jobs.pipeline.planning.requested import load_inputs, parse_rate, parse_rates
from spark_jobs.pipeline.planning.what_if import RateChange
from spark_jobs.streams.sources.decoding import parse_instant
from spark_jobs.windows.loading import parse_group, parse_having
from tests.hostile import attacks
from tests.hostile.attacks import expanded
from tests.hostile.guard import SECRET_NAME, WINDOW, Canary, bounded, check_findings, parsed, told


def _said(text: str, canary: Canary) -> str:
    return text.replace("@CANARY", str(canary.path)).replace("@SECRET", SECRET_NAME)


@pytest.mark.parametrize("path", attacks.PATHS)
def test_paths_of_sources_are_refused(path: str, canary: Canary, tmp_path: Path) -> None:
    (tmp_path / "link-to-etc").symlink_to("/etc")
    text = attacks.STREAM.replace("@PATH", expanded(path))
    text = _said(text.replace("@SECRETVALUE", canary.secret), canary)
    (tmp_path / "streams.yaml").write_text(text)
    with bounded(text):
        streams, diagnostics = load_streams(tmp_path / "streams.yaml")
    assert not streams and diagnostics
    canary.check(*told(diagnostics))
    check_findings(diagnostics, text)


@pytest.mark.parametrize("what", attacks.YAML)
def test_hostile_yaml_is_refused(what: str, canary: Canary, tmp_path: Path) -> None:
    text = expanded(attacks.YAML[what])
    (tmp_path / "streams.yaml").write_bytes(text.encode(errors="surrogatepass"))
    with bounded(text):
        _, diagnostics = load_streams(tmp_path / "streams.yaml")
    assert diagnostics and len(diagnostics) <= 600
    canary.check(*told(diagnostics))
    check_findings(diagnostics, text)


def test_columns_behind_aliases_count_each_time(tmp_path: Path) -> None:
    (tmp_path / "streams.yaml").write_text(expanded(attacks.YAML["aliases of a wide schema"]))
    streams, diagnostics = load_streams(tmp_path / "streams.yaml")
    assert sum(len(stream.schema) for stream in streams.values()) <= NODES
    assert {diagnostic.code for diagnostic in diagnostics} == {"HDL-459"}


def test_streams_lie_in_the_folders_of_the_settings(
    canary: Canary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (inside / "link.csv").symlink_to(canary.path)
    (inside / "good.csv").write_text("ts\n")
    hostile = ("../canary.csv", str(canary.path), "link.csv", str(outside), "../inside2", "/", "s3a://bucket/x", "..")
    for path in (*hostile, "good.csv", "../inside/./good.csv"):
        (inside / "streams.yaml").write_text(attacks.STREAM.replace("@PATH", path))
        monkeypatch.setenv("HEDDLE_SOURCES", f"{inside}{os.pathsep}{tmp_path / 'none'}")
        inputs = load_inputs([], inside / "streams.yaml")
        codes = [error.code for error in inputs.errors]
        assert codes == (["HDL-458"] if path in hostile else []), path
        canary.check(*told(inputs.errors))
    monkeypatch.delenv("HEDDLE_SOURCES")
    (inside / "streams.yaml").write_text(attacks.STREAM.replace("@PATH", "../outside"))
    assert not load_inputs([], inside / "streams.yaml").errors


@pytest.mark.parametrize("text", attacks.RATES)
def test_hostile_rates(text: str, canary: Canary) -> None:
    text = _said(text, canary)
    for read in (
        parse_rate,
        lambda text: parse_rates([f"trades={text}"]),
        lambda text: RateChange.parse(f"tradesx{text}"),
    ):
        with bounded(text), pytest.raises(HeddleError) as refused:
            read(text)
        assert refused.value.diagnostic.code == "HDL-112"
        canary.check(*told([refused.value.diagnostic]))
        check_findings([refused.value.diagnostic], text)


@pytest.mark.parametrize("text", attacks.INSTANTS)
def test_hostile_instants_and_durations(text: str, canary: Canary) -> None:
    text = _said(text, canary)
    for read, code in ((parse_instant, "HDL-114"), (parse_duration, "HDL-204")):
        with bounded(text), pytest.raises(HeddleError) as refused:
            read(text)
        assert refused.value.diagnostic.code == code
        canary.check(*told([refused.value.diagnostic]))
        check_findings([refused.value.diagnostic], text)


@pytest.mark.parametrize("text", attacks.THRESHOLDS)
def test_hostile_thresholds_and_groups(text: str, canary: Canary) -> None:
    text = _said(text, canary)
    select = f"SELECT max(symbol) AS s, count(*) AS n FROM trades {WINDOW} GROUP BY day, qty"
    query = parsed(select, canary).queries[0]
    attempts = (
        (lambda: parse_having(query, text), {"HDL-608", "HDL-305"}),
        (lambda: parse_group(query, [text, "1"]), {"HDL-605"}),
    )
    for read, codes in attempts:
        with bounded(text), pytest.raises(HeddleError) as refused:
            read()
        assert refused.value.diagnostic.code in codes
        canary.check(*told([refused.value.diagnostic]))
        check_findings([refused.value.diagnostic], text)


def _params() -> list[dict[str, Any]]:
    rates = (float("nan"), float("inf"), -1, "1e9999999", "x" * 100_000, None, [1], {"a": 1}, True, 10**400, "${env:X}")
    param_sets: list[dict[str, Any]] = [{"rates": {"trades": rate}} for rate in rates]
    param_sets += [
        {"rates": {name: 1}} for name in ("none", "../x", "<script>", "[red]", "\x1b[31m", "\ud800", "x" * 100_000)
    ]
    param_sets += [{"algorithm": name} for name in ("", "none", "os.system", "../x", "best\x00", "x" * 100_000)]
    param_sets += [{"cost_model": name} for name in ("", "none", "\x1b[31m")]
    return [*param_sets, *({"tolerance": value} for value in (float("nan"), float("inf"), -1.0))]


@pytest.mark.parametrize("params", _params(), ids=lambda params: repr(params)[:40])
def test_hostile_params_store_nothing(params: dict[str, Any], canary: Canary, tmp_path: Path) -> None:
    (tmp_path / "trades.csv").write_text("ts,symbol\n2013-01-01 00:00:00,A\n")
    (tmp_path / "streams.yaml").write_text(attacks.STREAM.replace("@PATH", "trades.csv"))
    (tmp_path / "w.sql").write_text(f"SELECT count(*) FROM trades {WINDOW}")
    options = {"algorithm": "shared", "rates": {"trades": 1}} | params
    with bounded(repr(params)[:300], 20.0), pytest.raises(HeddleError) as refused:
        refresh_plan(tmp_path / "house", [tmp_path / "w.sql"], tmp_path / "streams.yaml", **options)
    assert refused.value.diagnostic.code in ("HDL-112", "HDL-407")
    check_findings([refused.value.diagnostic], "")
    canary.check(*told([refused.value.diagnostic]))
    # a house may have been made, but no plan is in it
    assert not list((tmp_path / "house").glob("sharing_plans/*.parquet"))


def test_an_owner_has_a_quota_and_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "streams.yaml").write_text(attacks.STREAM.replace("@PATH", "trades.csv"))
    owners = ("a", "b", "a", "", "a", "a", "b", "", "")
    for file, part in (("one.sql", owners[:5]), ("two.sql", owners[5:])):
        texts = [
            f"-- name: {file[0]}{n}\n-- owner: {o}\n" if o else f"-- name: {file[0]}{n}\n" for n, o in enumerate(part)
        ]
        (tmp_path / file).write_text("".join(f"{text}SELECT count(*) FROM trades {WINDOW};\n" for text in texts))
    files = [tmp_path / "one.sql", tmp_path / "two.sql"]
    monkeypatch.setenv("HEDDLE_OWNER_QUOTA", "2")
    inputs = load_inputs(files, tmp_path / "streams.yaml")
    assert [query.name for query in inputs.workload.queries] == ["o0", "o1", "o2", "o3", "t1", "t2"]
    assert [(error.code, error.query, Path(error.file).name, error.line) for error in inputs.errors] == [
        ("HDL-311", "o4", "one.sql", 14),
        ("HDL-311", "t0", "two.sql", 3),
        ("HDL-311", "t3", "two.sql", 10),
    ]
    assert "of a" in inputs.errors[0].message and "HEDDLE_OWNER_QUOTA" in inputs.errors[0].hint
    # queries that name no owner are those of the one that the settings name
    monkeypatch.setenv("HEDDLE_OWNER", "b")
    inputs = load_inputs(files, tmp_path / "streams.yaml")
    assert [(query.name, query.owner) for query in inputs.workload.queries] == [
        *[("o0", "a"), ("o1", "b"), ("o2", "a"), ("o3", "b")]
    ]
    monkeypatch.delenv("HEDDLE_OWNER")
    monkeypatch.delenv("HEDDLE_OWNER_QUOTA")
    assert not load_inputs(files, tmp_path / "streams.yaml").errors
    for wrong in ("many", "-1", "1e9", "9" * 20):
        monkeypatch.setenv("HEDDLE_OWNER_QUOTA", wrong)
        with pytest.raises(HeddleError, match="HDL-120"):
            load_inputs(files, tmp_path / "streams.yaml")


def test_rates_are_exact_fractions_still() -> None:
    assert RateChange.parse("trades×1.5").number == Fraction(3, 2)
