"""The page in Airflow: nobody sees it without a user, and text from tables cannot become markup."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.dags.conftest import RunScript

ROOT = Path(__file__).resolve().parents[2]

# the app alone, with the auth manager that Airflow makes when its api-server starts
PROBE = """
from airflow.api_fastapi.app import create_auth_manager
create_auth_manager()
import json
from fractions import Fraction
from pathlib import Path
from fastapi.testclient import TestClient
from optimizer.plan.builder import build_plan
from optimizer.workload.values import ACQ, LONG, SECOND, TIMESTAMP, Output, Source, Stream, Window, Workload
from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.store.warehouse.warehouse import Warehouse
from heddle.airflow import pages
from heddle.pages import served
client = TestClient(pages.airflow_app())
hostile = "<script>alert(1)</script>"
stream = Stream(hostile, Source("csv", "x"), (("ts", TIMESTAMP),), "ts")
outputs = (Output("n", "count", None, None, LONG),)
queries = [
    ACQ(name, hostile, Window(8 * SECOND, slide * SECOND), outputs, owner=hostile)
    for name, slide in ((hostile, 4), ("other", 2))
]
warehouse = Warehouse.open("warehouse")
for rate in (1000, 2000):
    for chosen in (queries, queries[:1]):
        plan = build_plan(Workload(tuple(chosen), (stream,)), {hostile: Fraction(rate)}, "weave-share")
        publish_plan(warehouse, plan, hostile, hostile)
house = Path("warehouse").absolute()
print("RESULT" + json.dumps({
    "statuses": {
        path: client.get(path).status_code for path in ("/", "/?version=1", "/docs", "/openapi.json")
    },
    "forged": client.get("/", headers={"Authorization": "Bearer nonsense"}).status_code,
    "first": served.plan_html(house, 1), "newest": served.plan_html(house, None),
    "empty": served.plan_html(Path("no/such/folder"), None), "none": served.plan_html(Path("no/such/folder"), 1),
    "beyond": served.plan_html(house, 9),
}))
"""


@pytest.fixture(scope="module")
def probed(run_script: RunScript, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    home = tmp_path_factory.mktemp("airflow")
    result, _ = run_script(PROBE, home, AIRFLOW__CORE__PLUGINS_FOLDER=str(home / "plugins"))
    return result


def test_no_user_no_page(probed: dict[str, Any]) -> None:
    assert probed["statuses"] == {"/": 401, "/?version=1": 401, "/docs": 404, "/openapi.json": 404}
    assert probed["forged"] in (401, 403)


def test_text_from_tables_is_escaped(probed: dict[str, Any]) -> None:
    for html in (probed["first"], probed["newest"]):
        assert "<script" not in html and "&lt;script&gt;alert(1)" in html


def test_the_page_is_of_the_version_asked_for(probed: dict[str, Any]) -> None:
    assert "<i>version</i> 1<" in probed["first"] and "other" in probed["first"]
    assert (
        "<i>version</i> 4<" in probed["newest"]
        and "other" not in probed["newest"].split("</style>")[1].split("<footer")[0]
    )
    assert probed["beyond"] is None


def test_without_a_plan_it_says_what_to_do(probed: dict[str, Any]) -> None:
    assert probed["none"] is None and "refresh_sharing_plan" in probed["empty"]


# ------------------------------------------------------------------------------- without users
REFUSED = """
import json, os
from pathlib import Path
from heddle.airflow import runs
from heddle.pages import served
from optimizer.errors.diagnostics import HeddleError
from spark_jobs.store.warehouse.warehouse import Warehouse
Warehouse.open(os.environ["HEDDLE_WAREHOUSE"])
found = []
for call in (
    lambda: served.operations_html(Path(os.environ["HEDDLE_WAREHOUSE"]), look=True),
    lambda: runs.published_row({"from": "2024-03-01T00:00:00+00:00", "to": "2024-03-02T00:00:00+00:00"}),
):
    with served._looking:
        try:
            found.append(str(call()))
        except HeddleError as error:
            found.append(error.diagnostic.code)
print("RESULT" + json.dumps(found))
"""


def test_one_looks_at_a_time_and_what_is_not_published_has_no_record(run_script: RunScript, tmp_path: Path) -> None:
    result, _ = run_script(REFUSED, tmp_path, HEDDLE_WAREHOUSE=str(tmp_path / "house"))
    assert result == ["HDL-555", "HDL-596"]


LINKED = """
import json, os
from types import SimpleNamespace
from heddle.airflow.operators import AggregateOperator, SparkLink
from heddle.pages import served
from spark_jobs.store.warehouse import publish_log
from spark_jobs.store.warehouse.publish_log import RunRecord
from spark_jobs.store.warehouse.warehouse import Warehouse
task = AggregateOperator(task_id="aggregate", conn_id="spark_default", pinned={})
(link,) = (link for link in task.operator_extra_links if isinstance(link, SparkLink))
key = SimpleNamespace(run_id="backfill__2013-07-01T00:00:00+00:00")
found = [link.get_link(task, ti_key=key)]
os.environ["HEDDLE_SPARK_HISTORY"] = "http://history:18080/"
found.append(link.get_link(task, ti_key=key))
house = Warehouse.open(os.environ["HEDDLE_WAREHOUSE"])
found.append(link.get_link(task, ti_key=key))
record = RunRecord(key.run_id, 1, 0, 60_000_000, 1, engine="spark yarn", application="application_1_2")
publish_log.log_event(house, record, "allocated", "hash", None)
found.append(link.get_link(task, ti_key=key))
page = served.run_html(os.environ["HEDDLE_WAREHOUSE"], key.run_id, None)
print("RESULT" + json.dumps([found, found[-1] in page]))
"""


def test_a_task_links_what_spark_did_for_its_run(run_script: RunScript, tmp_path: Path) -> None:
    variables = {"HEDDLE_HOME": str(tmp_path), "HEDDLE_WAREHOUSE": str(tmp_path / "house")}
    (links, is_linked), _ = run_script(LINKED, tmp_path, **variables)
    own = "/sharing-plan/run?id=backfill__2013-07-01T00%3A00%3A00%2B00%3A00"
    # a run that is on record nowhere has no page in a history server
    assert links == [own, own, own, "http://history:18080/history/application_1_2/"] and is_linked


# ------------------------------------------------------------------------------- with users, and a refresh
SERVED = """
import json, os, re, sys
from html import unescape
from pathlib import Path
from airflow.api_fastapi.app import init_auth_manager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.dag_processing.bundles.manager import DagBundlesManager
from airflow.dag_processing.dagbag import BundleDagBag, sync_bag_to_db
from airflow.models import Log
from airflow.models.dagrun import DagRun
from airflow.models.xcom import XComModel
from airflow.utils.session import create_session
from fastapi import FastAPI
from fastapi.testclient import TestClient
from heddle.airflow import pages

root = Path(sys.argv[1])
bag = BundleDagBag(root / "dags", bundle_path=root / "dags", bundle_name="dags-folder")
assert not bag.import_errors, bag.import_errors
DagBundlesManager().sync_bundles_to_db()
sync_bag_to_db(bag, "dags-folder", None)
manager = init_auth_manager()
# mounted, as in the api-server
whole = FastAPI()
whole.mount("/sharing-plan", pages.airflow_app())

def client(role=None, bearer=False):
    made = TestClient(whole, base_url="http://heddle", follow_redirects=False, raise_server_exceptions=False)
    if role:
        token = manager.generate_jwt(SimpleAuthManagerUser(username="anna <b>", role=role))
        if bearer:
            made.headers["Authorization"] = f"Bearer {token}"
        else:
            made.cookies.set("_token", token)
    return made

HERE = {"Origin": "http://heddle"}
GOOD = {"algorithm": "best", "cost_model": "paper", "tolerance": "0.05", "rates": "events=0.5", "reason": "try"}
def told(answer):
    text = unescape(re.sub("<style>.*?</style>", "", answer.text, flags=re.S))
    return [answer.status_code, text, dict(answer.headers)]

nobody, viewer, user = client(), client("VIEWER"), client("USER")
paths = ["", "history", "operations", "operations?look=1", "refresh", "data-docs/0123456789abcdef.html",
         "radius?from=1&to=2&revision=1", "answers", "query?name=volume", "query?name=nothing", "streams", "trends"]
found = {"gets": {}, "posts": {}, "hostile": {}}
for path in paths:
    found["gets"][path] = [one.get("/sharing-plan/" + path).status_code for one in (nobody, viewer, user)]
for path in ("refresh", "apply"):
    found["posts"][path] = [
        one.post("/sharing-plan/" + path, data={"run": "x"}, headers=HERE).status_code for one in (nobody, viewer, user)
    ]

# from where
def dry(one, headers, data=GOOD):
    return one.post("/sharing-plan/refresh", data=data, headers=headers)
for name, one, headers in (
    ("another site", user, {"Sec-Fetch-Site": "cross-site", **HERE}),
    ("a sibling", user, {"Sec-Fetch-Site": "same-site"}),
    ("another origin", user, {"Origin": "http://evil"}),
    ("another port", user, {"Origin": "http://heddle:81"}),
    ("no origin", user, {"Origin": "null"}),
    ("nothing", user, {}),
    ("a token", client("USER", bearer=True), {}),
    ("the page", user, {"Sec-Fetch-Site": "same-origin"}),
):
    answer = dry(one, headers)
    found["posts"][name] = [answer.status_code, "HDL-554" in answer.text]

# what nobody's form sends
hostile = "<script>alert(1)</script>"
for name, data in json.loads(sys.argv[2]).items():
    answer = dry(user, HERE, GOOD | data)
    found["hostile"][name] = told(answer)
found["hostile"]["large"] = told(dry(user, HERE, GOOD | {"reason": "x" * 20000}))
found["hostile"]["fields"] = told(dry(user, HERE, {f"f{n}": "x" for n in range(40)}))
found["hostile"]["json"] = told(user.post("/sharing-plan/refresh", json=GOOD, headers=HERE))
found["hostile"]["bytes"] = told(user.post("/sharing-plan/refresh", content=b"\\xff\\xfe=%ff", headers=HERE | {
    "Content-Type": "application/x-www-form-urlencoded"}))
found["hostile"]["run"] = told(user.post("/sharing-plan/apply", data={"run": hostile}, headers=HERE))
for path in ("refresh?run=" + hostile, "refresh?run=" + "x" * 400, "data-docs/..%2f..%2fheddle.json",
             "radius?from=1&to=" + hostile + "&revision=1", "radius?", "data-docs/%2e%2e/heddle.json",
             "data-docs/0123456789abcdef.html%00", "history?version=" + hostile):
    found["hostile"][path] = told(user.get("/sharing-plan/" + path))

# a dry run, looked at and applied
with create_session() as session:
    before = session.query(DagRun).count()
asked = dry(user, HERE)
place = asked.headers["location"]
found["place"] = place
waiting = told(user.get("/sharing-plan/" + place))

def execute(run_id):
    # what the scheduler and a worker do, here at once
    with create_session() as session:
        run = session.query(DagRun).filter(DagRun.run_id == run_id).one()
        conf, by = run.conf, run.triggering_user_name
    done = bag.dags["refresh_sharing_plan"].test(run_conf=conf)
    with create_session() as session:
        mine = session.query(XComModel).filter(XComModel.run_id == done.run_id, XComModel.task_id == "refresh")
        for one in mine.all():
            value = XComModel.deserialize_value(one)
            mine_too = {"dag_id": "refresh_sharing_plan", "task_id": "refresh", "run_id": run_id, "session": session}
            XComModel.set(one.key, value, **mine_too)
        run = session.query(DagRun).filter(DagRun.run_id == run_id).one()
        run.state = done.state
    return str(done.state), by, conf

from urllib.parse import unquote
dry_id = unquote(place.partition("run=")[2])
found["dry"] = execute(dry_id)
shown = told(user.get("/sharing-plan/" + place))
answer = user.post("/sharing-plan/apply", data={"run": dry_id}, headers=HERE)
found["waiting"], found["shown"], found["apply"] = waiting, shown, told(answer)
second = unquote(answer.headers["location"].partition("run=")[2])
found["applied"] = execute(second)
found["stored"] = told(user.get("/sharing-plan/" + answer.headers["location"]))
# once more: the plan in force is another one by now
found["stale page"] = told(user.get("/sharing-plan/" + place))
found["stale"] = told(user.post("/sharing-plan/apply", data={"run": dry_id}, headers=HERE))
found["refused"] = told(user.post("/sharing-plan/apply", data={"run": second}, headers=HERE))
# past the page's own check, the DAG refuses
late = bag.dags["refresh_sharing_plan"].test(run_conf=found["applied"][2] | {"expected_version": 7})
other = bag.dags["refresh_sharing_plan"].test(
    run_conf=found["applied"][2] | {"expected_version": None, "expected_plan": "0" * 16})
with create_session() as session:
    for name, run in (("late", late), ("other", other)):
        kept = session.query(XComModel).filter(XComModel.run_id == run.run_id, XComModel.key == "problem").one()
        found[name] = [str(run.state), XComModel.deserialize_value(kept)]
    found["log"] = [[log.owner, log.dag_id, log.run_id, json.loads(log.extra)["conf"]["dry_run"]]
                    for log in session.query(Log).filter(Log.event == "trigger_dag_run").order_by(Log.id)]
    found["runs"] = session.query(DagRun).count() - before
found["form"] = told(user.get("/sharing-plan/refresh"))
from deltalake import DeltaTable
rows = DeltaTable(os.environ["HEDDLE_WAREHOUSE"] + "/sharing_plans").to_pyarrow_table().to_pylist()
found["rows"] = sorted({(row["plan_version"], row["created_by"], row["reason"]) for row in rows})
house = Path(os.environ["HEDDLE_WAREHOUSE"])
(house / "data_docs").mkdir()
(house / "data_docs" / "0123456789abcdef.html").write_text("docs")
(house / "data_docs" / "0123456789abcdee.html").symlink_to(house / "heddle.json")
found["docs"] = told(viewer.get("/sharing-plan/data-docs/0123456789abcdef.html"))
found["link"] = viewer.get("/sharing-plan/data-docs/0123456789abcdee.html").status_code
facts = {"answers of": hostile}
(house / "data_docs" / "0123456789abcded.json").write_text(json.dumps({"facts": facts, "problem": "none"}))
found["result"] = told(viewer.get("/sharing-plan/data-docs/0123456789abcded.html"))
found["raw result"] = viewer.get("/sharing-plan/data-docs/0123456789abcded.json").status_code
found["pages"] = {path: told(viewer.get("/sharing-plan/" + path)) for path in paths[:4]}
# the file is gone, another one is there
workload = Path("workload.sql")
Path("another.sql").write_text(workload.read_text().replace("volume", "another"))
workload.unlink()
found["removals"] = []
for allow in (False, True):
    conf = GOOD | {"tolerance": 0.05, "rates": {"events": 0.5}, "expected_version": None, "expected_plan": None}
    run = bag.dags["refresh_sharing_plan"].test(run_conf=conf | {"dry_run": False, "allow_removals": allow})
    with create_session() as session:
        kept = session.query(XComModel).filter(XComModel.run_id == run.run_id, XComModel.task_id == "refresh")
        values = {one.key: XComModel.deserialize_value(one) for one in kept.all()}
        diff = (values.get("return_value") or {}).get("diff")
        found["removals"].append([str(run.state), values.get("problem"), diff])
print("RESULT" + json.dumps(found))
"""

HOSTILE_FORMS = {
    "algorithm": {"algorithm": "<script>alert(1)</script>"},
    "cost model": {"cost_model": "../../etc/passwd"},
    "tolerance": {"tolerance": "nan"},
    "negative": {"tolerance": "-1"},
    "digits": {"tolerance": "٣"},
    "rate": {"rates": "<script>alert(1)</script>=x"},
    "zero": {"rates": "events=0"},
    "huge": {"rates": "events=1e999999999"},
    "many": {"rates": "\n".join(f"s{number}=1" for number in range(65))},
    "twice": {"rates": "events=1\nevents=2"},
}


@pytest.fixture(scope="module")
def served(run_script: RunScript, airflow_database: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The routes under Airflow's own users, database and DAG, and the DAG's tasks where the page asks for them."""
    place = tmp_path_factory.mktemp("served")
    (place / "workload.sql").write_text(
        "-- name: volume\nSELECT kind, count(*) AS n FROM events\n"
        "WINDOW RANGE '1 hour' SLIDE '20 minutes' ON ts GROUP BY kind;"
    )
    (place / "streams.yaml").write_text(
        "streams:\n  events:\n    source: {format: csv, path: events.csv}\n"
        "    schema: {ts: timestamp, kind: string}\n    time: ts\n"
    )
    (place / "events.csv").write_text("ts,kind\n2013-07-01 00:00:00,a\n2013-07-01 01:00:00,b\n")
    variables = {
        "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
        "AIRFLOW__API_AUTH__JWT_SECRET": "of this test alone, and long enough for it to be one that is taken",
        "HEDDLE_HOME": str(ROOT),
        "HEDDLE_WAREHOUSE": str(place / "warehouse"),
        "HEDDLE_STREAMS": str(place / "streams.yaml"),
        "HEDDLE_WORKLOAD": str(place / "*.sql"),
    }
    shutil.copy(airflow_database, place)
    result, _ = run_script(SERVED, place, str(ROOT), json.dumps(HOSTILE_FORMS), **variables)
    return result


def test_every_route_has_its_permission(served: dict[str, Any]) -> None:
    """Nobody, a viewer, a user: reading takes a viewer, whatever runs something a user."""
    gets = served["gets"]
    for path in ("", "history", "operations", "operations?look=1", "answers", "streams", "trends"):
        assert gets[path] == [401, 200, 200], path
    assert gets["refresh"] == [401, 403, 200]
    assert gets["data-docs/0123456789abcdef.html"] == gets["radius?from=1&to=2&revision=1"] == [401, 404, 404]
    assert gets["query?name=nothing"] == [401, 404, 404]
    assert served["posts"]["refresh"] == [401, 403, 400] and served["posts"]["apply"] == [401, 403, 400]


def test_other_sites_cannot_ask_for_a_refresh(served: dict[str, Any]) -> None:
    for name in ("another site", "a sibling", "another origin", "another port", "no origin", "nothing"):
        assert served["posts"][name] == [403, True], name
    assert served["posts"]["a token"] == served["posts"]["the page"] == [303, False]


def test_hostile_forms_and_addresses_are_refused_with_a_code_and_not_repeated(served: dict[str, Any]) -> None:
    for name, (status, text, _) in served["hostile"].items():
        if "?" in name or "/" in name:
            assert status == 404 and "No such page" in text and "alert(1)" not in text, name
            continue
        expected = {"rate": "HDL-112", "huge": "HDL-112", "twice": "HDL-112", "run": "HDL-553"}.get(name, "HDL-552")
        assert status == 400 and expected in text, (name, status, text[:300])
    # unescaped once more, so that markup which was escaped is seen: it is what the form was given, in its own field
    assert "alert(1)" not in served["hostile"]["algorithm"][1] and "passwd" not in served["hostile"]["cost model"][1]


def test_a_dry_run_is_run_by_airflow_as_its_user(served: dict[str, Any]) -> None:
    state, by, conf = served["dry"]
    assert state.endswith("success") and by == "anna <b>"
    assert conf == {
        **{"algorithm": "best", "cost_model": "paper", "tolerance": 0.05, "rates": {"events": 0.5}},
        **{"reason": "try", "allow_removals": False, "dry_run": True},
    }
    assert 'http-equiv="refresh"' in served["waiting"][1]
    status, text, headers = served["shown"]
    assert status == 200 and "+ query volume" in text and 'action="apply"' in text
    assert "form-action 'self'" in headers["content-security-policy"]
    assert headers["referrer-policy"] == "same-origin" and headers["cache-control"] == "no-store"


def test_what_was_shown_is_applied_once_as_the_user_and_logged(served: dict[str, Any]) -> None:
    state, by, conf = served["applied"]
    assert state.endswith("success") and conf["expected_version"] == 0 and conf["dry_run"] is False
    [[version, created_by, reason]] = served["rows"]
    assert (version, reason) == (1, "try") and "manual__" in created_by
    assert "Version 1 was stored" in served["stored"][1]
    # two dry runs of the tests of origins, a dry run and its application
    assert [row[3] for row in served["log"]] == [True, True, True, False]
    assert {(owner, dag) for owner, dag, *_ in served["log"]} == {("anna <b>", "refresh_sharing_plan")}
    assert all(run_id.startswith("manual__") for _, _, run_id, _ in served["log"])
    assert "anna <b>" in served["form"][1]


def test_nothing_is_applied_to_another_plan_than_it_was_shown_for(served: dict[str, Any]) -> None:
    assert "HDL-551 version 1 is in force now" in served["stale page"][1]
    assert 'action="apply"' not in served["stale page"][1]
    assert served["stale"][0] == 409 and "HDL-551" in served["stale"][1]
    assert served["refused"][0] == 400 and "HDL-553" in served["refused"][1]
    state, problem = served["late"]
    assert state.endswith("failed") and "HDL-551 the plan in force is version 1, not 7" in problem
    state, problem = served["other"]
    assert state.endswith("failed") and "HDL-560" in problem


def test_a_folder_that_lost_a_file_is_refused_unless_removals_are_allowed(served: dict[str, Any]) -> None:
    [[state, problem, _], [allowed, _, diff]] = served["removals"]
    assert state.endswith("failed") and "HDL-526 1 of 1 registered queries would be removed" in problem
    assert "workload.sql" in problem
    assert allowed.endswith("success") and diff[:2] == ["- query volume", "+ query another"]


def test_pages_under_airflow(served: dict[str, Any]) -> None:
    assert served["docs"][:2] == [200, "docs"] and served["link"] == 404
    status, text, headers = served["result"]
    # unescaped once by the probe
    assert status == 200 and "HDL-557" in text and "<script>alert(1)" in text and served["raw result"] == 404
    for name in ("docs", "result"):
        assert "default-src 'none'" in served[name][2]["content-security-policy"]
        assert served[name][2]["content-type"] == "text/html; charset=utf-8"
    for path, (status, text, headers) in served["pages"].items():
        assert status == 200 and "<nav" in text and "<script" not in text, path
        assert "default-src 'none'" in headers["content-security-policy"]
    assert '+ query <a href="query?name=volume">volume</a>' in served["pages"]["history"][1]
    assert "DAG aggregate_windows" in served["pages"]["operations"][1]
