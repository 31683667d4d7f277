"""``make demo``: a year of real flights through Airflow and Spark, and a summary of what came out.

Loads the 336,776 flights of 2013, starts the embedded Airflow, has the DAG ``refresh_sharing_plan`` make the plan,
runs consecutive daily intervals of ``aggregate_windows`` by Airflow's own backfill, prints what ``heddle`` reports
about plan, runs and answers, and stops Airflow again (``--keep`` leaves it running). With ``--s3`` the flights and
the warehouse are in the embedded S3 server instead of folders.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from heddle.local.airflow_api import AirflowApi, AirflowApiError
from heddle.local.object_store import ObjectStore
from heddle.local.servers import Place, Server, airflow_environment, down, up
from optimizer.errors.diagnostics import HeddleError
from spark_jobs.store.settings import Settings, project_file

FIRST_DAY = date(2013, 7, 1)
SHOWN = ("network_delay_5h", "shuttle_boston_3", "watch_day")
"""The query whose answers the summary shows."""

PATIENCE_SECONDS = 1500.0
ENDED = frozenset({"success", "failed"})


class DemoError(Exception):
    """Error of a step of the demo; the message names the place to look."""


def heading(text: str) -> None:
    """Print what the demo does next."""
    print(f"\n==> {text}", flush=True)


def wait_for(describe: str, poll: Callable[[], tuple[int, int, str]], patience: float) -> None:
    """Poll until all is done: ``poll`` returns (done, of how many, what is going on).

    A progress bar on a terminal, a line for each change elsewhere. Raises :class:`DemoError` after
    ``patience`` seconds.
    """
    console = Console()
    give_up = time.monotonic() + patience
    bar = Progress(SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), console=console)
    last = ""
    with bar if console.is_terminal else nullcontext():
        line = bar.add_task(describe)
        while True:
            done, total, doing = poll()
            text = f"{describe}: {done} of {total}" + (f" ({doing})" if doing else "")
            bar.update(line, completed=done, total=total, description=text)
            if text != last and not console.is_terminal:
                print(f"    {text}", flush=True)
            last = text
            if done >= total:
                return
            if time.monotonic() > give_up:
                raise DemoError(f"{text}: not finished after {patience:.0f} s")
            time.sleep(1.0)


def wait_for_dags(api: AirflowApi, names: Sequence[str]) -> None:
    """Until the dag-processor has read the DAG files; an import error is shown at once."""

    def poll() -> tuple[int, int, str]:
        errors = api.get("/api/v2/importErrors")["import_errors"]
        if errors:
            raise DemoError("\n".join(error["stack_trace"] for error in errors))
        known = {dag["dag_id"] for dag in api.get("/api/v2/dags?limit=100")["dags"]}
        return len(known & set(names)), len(names), ""

    wait_for("DAGs read", poll, 120)


def runs(api: AirflowApi, dag: str, ids: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """The runs of a DAG; with ``ids`` only those."""
    dag_runs: list[dict[str, Any]] = api.get(f"/api/v2/dags/{dag}/dagRuns?limit=100")["dag_runs"]
    return [run for run in dag_runs if ids is None or run["dag_run_id"] in ids]


def follow(api: AirflowApi, dag: str, choose: Callable[[], list[dict[str, Any]]], total: int, what: str) -> None:
    """Wait for runs to end; raises :class:`DemoError` if one failed."""

    def poll() -> tuple[int, int, str]:
        chosen = choose()
        failed = [run["dag_run_id"] for run in chosen if run["state"] == "failed"]
        if failed:
            raise DemoError(f"{dag}: {', '.join(failed)} failed: {api.base_url}/dags/{dag}")
        active = [run["dag_run_id"] for run in chosen if run["state"] == "running"]
        return sum(run["state"] in ENDED for run in chosen), total, active[0] if active else ""

    wait_for(what, poll, PATIENCE_SECONDS)


def refresh_plan(api: AirflowApi) -> None:
    """Trigger the plan's DAG by hand, as a user does, and wait for it."""
    dag = "refresh_sharing_plan"
    run = api.post(f"/api/v2/dags/{dag}/dagRuns", {"logical_date": None, "conf": {"reason": "make demo"}})
    follow(api, dag, lambda: runs(api, dag, [run["dag_run_id"]]), 1, "plan refreshed")


def backfill_days(api: AirflowApi, first: date, days: int) -> None:
    """Run ``days`` consecutive daily intervals by Airflow's own backfill and wait for them."""
    dag, last = "aggregate_windows", first + timedelta(days=days - 1)
    dates = {(first + timedelta(days=number)).isoformat() for number in range(days)}

    def chosen() -> list[dict[str, Any]]:
        return [
            run
            for run in runs(api, dag)
            if run["run_type"] == "backfill" and str(run["data_interval_start"])[:10] in dates
        ]

    # An earlier backfill is marked as finished only some 15-30 s after its last run; until then: 409.
    give_up = time.monotonic() + 90
    while True:
        try:
            api.post(
                "/api/v2/backfills",
                {
                    "dag_id": dag,
                    "from_date": f"{first}T00:00:00Z",
                    "to_date": f"{last}T00:00:00Z",
                    "max_active_runs": 1,
                    "reprocess_behavior": "completed",
                },
            )
            break
        except AirflowApiError as error:
            if error.status not in (409, 503) or time.monotonic() > give_up:
                raise
            time.sleep(3.0)
    follow(api, dag, chosen, days, "intervals published")


def show_applications(warehouse: str) -> None:
    """Print Spark's work for each interval, from the records of the runs."""
    from spark_jobs.store.warehouse import publish_log
    from spark_jobs.store.warehouse.warehouse import Warehouse

    rows = publish_log.newest_rows(Warehouse.open(warehouse, create=False), "at", publish_log.PUBLISHED, 100)
    for row in sorted(rows, key=lambda row: row.begin):
        record = row.record
        tasks, seconds = sum(job["tasks"] for job in record.jobs), sum(job["seconds"] for job in record.jobs)
        spent = sum(job.get("cpu_seconds", 0.0) for job in record.jobs)
        ran = f"application {record.application or 'none'}, {len(record.jobs)} jobs, {tasks} tasks, {seconds:.1f} s, "
        ran += f"{spent:.1f} CPU-s of executors"
        print(f"    {row.interval}: {record.engine}, {ran}", flush=True)


def consume(place: Place, environment: dict[str, str], warehouse: str) -> None:
    """Have a Spark application that knows nothing of Heddle read the table of a query. Raises :class:`DemoError`."""
    from spark_jobs.engine.configuration import spark_settings

    script = place.root / "dags" / "workload" / "read_with_spark.py"
    settings = [
        part for key, value in delta_settings(spark_settings()).items() for part in ("--conf", f"{key}={value}")
    ]
    print(f"\n$ spark-submit {script.relative_to(place.root)} {warehouse}/tables", flush=True)
    submit = str(Path(sys.executable).parent / "spark-submit")
    command = [submit, "--master", "local[2]", *settings, str(script), f"{warehouse}/tables"]
    done = subprocess.run(command, cwd=place.root, env=environment, capture_output=True, text=True)
    print(done.stdout, flush=True)
    if done.returncode:
        raise DemoError(f"the consumer ended with exit code {done.returncode}: {done.stderr[-2000:]}")


def delta_settings(session: dict[str, str]) -> dict[str, str]:
    """The settings of one of our sessions that any Spark needs to read Delta."""
    names = ("spark.jars", "spark.driver.extraClassPath", "spark.sql.extensions", "spark.sql.catalog.spark_catalog")
    return {name: session[name] for name in (*names, "spark.sql.session.timeZone") if name in session}


def heddle(place: Place, environment: dict[str, str], *arguments: str) -> None:
    """Run one command of the command line; raises :class:`DemoError` if it fails."""
    program = Path(sys.executable).parent / "heddle"
    print(f"\n$ heddle {' '.join(arguments)}", flush=True)
    done = subprocess.run([str(program), *arguments], cwd=place.root, env=environment)
    if done.returncode:
        raise DemoError(f"heddle {arguments[0]} ended with exit code {done.returncode}")


BUCKET = "heddle-demo"


@contextmanager
def on_a_store(place: Place) -> Iterator[str]:
    """Let all processes from now on have flights and warehouse in the embedded S3 server; the URL of the flights."""
    down(place)  # an Airflow that runs knows nothing of the store
    heading("an S3 server on loopback")
    store = ObjectStore.over(place.var / "s3" / "objects")
    store.start()
    try:
        store.make_bucket(BUCKET)
        flights, declared = f"s3://{BUCKET}/flights", place.var / "s3" / "streams.yaml"
        text = (place.root / "dags" / "workload" / "streams.yaml").read_text()
        declared.write_text(text.replace("../../var/data/flights", flights))
        settings = {"HEDDLE_WAREHOUSE": f"s3://{BUCKET}/warehouse", "HEDDLE_STREAMS": str(declared)}
        os.environ.update(store.environment | settings)
        yield flights
    finally:
        store.stop()


def demo(place: Place, days: int, keep: bool, data: str) -> None:
    """Load the flights, start Airflow, publish some days, and show what came of it; ``keep``: Airflow goes on.
    ``data``: where the flights are."""
    begun = time.monotonic()
    heading("the flights of 2013")
    loader = place.root / "dags" / "workload" / "load_flights.py"
    if subprocess.run([sys.executable, str(loader), data], cwd=place.root).returncode:
        raise DemoError("the flights could not be loaded")
    heading("Airflow on PostgreSQL, on loopback")
    api = up(place)
    try:
        heading("the sharing plan")
        wait_for_dags(api, ("refresh_sharing_plan", "aggregate_windows"))
        refresh_plan(api)
        end = FIRST_DAY + timedelta(days=days)
        heading(f"{days} daily intervals, {FIRST_DAY} to {end}")
        backfill_days(api, FIRST_DAY, days)
        heading("summary")
        server = Server.load(place, "airflow")
        postgres = Server.load(place, "postgres")
        if server is None or postgres is None:
            raise DemoError("Airflow was stopped from outside")
        environment = airflow_environment(place, postgres.ports["sql"], server.ports)
        configured = Settings(environment, project_file(environment))
        warehouse, streams = str(configured.warehouse), str(configured.streams)
        files = [str(file) for file in sorted((place.root / "dags" / "workload").glob("*.sql"))]
        heddle(place, environment, "plan", *files, "--streams", streams)
        interval = ("--from", f"{FIRST_DAY}", "--to", f"{end}")
        # One published interval: what is compared is the cost of one run.
        last_day = ("--from", f"{end - timedelta(days=1)}", "--to", f"{end}")
        if not data.startswith("s3:"):  # plain Spark jobs, which the embedded server's data are out of reach for
            heddle(place, environment, "compare", "--warehouse", warehouse, *last_day, "--sample", "3")
        heading("what Spark did")
        show_applications(warehouse)
        for name in SHOWN:
            heddle(place, environment, "read", name, "--warehouse", warehouse, *interval, "--limit", "8")
        heddle(place, environment, "explain", SHOWN[-1], "--warehouse", warehouse)
        heddle(place, environment, "status", "--warehouse", warehouse)
        if not data.startswith("s3:"):
            heading("a consumer with Spark and Delta, and nothing of Heddle")
            consume(place, environment, warehouse)
        print(f"\ntables   {warehouse}\nAirflow  {api.base_url}" + ("" if keep else "   (make up)"))
    finally:
        if not keep:
            down(place)
    print(f"done in {time.monotonic() - begun:.0f} s")


def main(arguments: Sequence[str] | None = None) -> int:
    """The demo as a program; its exit code."""
    parser = argparse.ArgumentParser(prog="make demo", description="a year of flights through Heddle")
    parser.add_argument("--days", type=int, default=4, help="daily intervals to run (default 4)")
    parser.add_argument("--keep", action="store_true", help="leave Airflow running")
    parser.add_argument("--s3", action="store_true", help="flights and warehouse in an embedded S3 server")
    options = parser.parse_args(arguments)
    if not 1 <= options.days <= 100:
        parser.error("--days: 1 to 100")
    if options.s3 and options.keep:
        parser.error("--keep does not go with --s3: the server ends with the demo")
    place = Place.of_environment()
    try:
        with on_a_store(place) if options.s3 else nullcontext(str(place.var / "data" / "flights")) as data:
            demo(place, options.days, options.keep, data)
    except (HeddleError, AirflowApiError, DemoError) as error:
        print(f"\ndemo: {error}\nlogs: {place.var / 'log'} and {place.airflow_home / 'logs'}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
