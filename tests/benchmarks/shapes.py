"""Is what the cost model chooses the cheapest? Generated shapes of workloads, each choice forced, and chosen.

    python -m tests.benchmarks.shapes [--shapes N] [--events N] [--rounds N] [--seed N] [--data DIR] [--json FILE]

A shape has a number of queries, filters (overlapping ranges of prices and volumes, or exchanges), group-bys, keys, and
slides that divide each other or are primes. Each is answered in turns, in this process and without checks:

| choice | plan | lifting |
|---|---|---|
| atoms | one tree | all synopses from one set of cells |
| families | one tree | each filter and group-by by itself |
| alone | a tree a query | each query by itself |
| chosen | the cheapest by measured costs, of a sample of the stream | as the counts say |

CPU seconds of partials and finals, the least of the rounds: a shape is small, and what else the machine does only adds.
The goal is that what is chosen costs at most 1.1 times the cheapest of the others, and 0.05 seconds: less is noise.
Exit code 1 where it is missed.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from statistics import median
from unittest import mock

from rich.console import Console
from rich.table import Table

from optimizer.language.parser import parse
from optimizer.plan.builder import build_plan
from optimizer.plan.definition import SharingPlan
from optimizer.workload.instants import DAY
from optimizer.workload.values import SECOND, Stream, Workload
from spark_jobs.engine.choice import Engine
from spark_jobs.pipeline.planning.publication import publish_plan
from spark_jobs.pipeline.planning.requested import model_of, profiles_of
from spark_jobs.pipeline.run.interval import run
from spark_jobs.store.warehouse.warehouse import Warehouse
from spark_jobs.windows.partials import fill_request
from tests.benchmarks.trades import DAY_START, generate

GOAL, NOISE = 1.1, 0.05

OUTPUTS = (
    "count(*) AS n",
    "sum(volume) AS total",
    "avg(price) AS mean",
    "min(price) AS low, max(price) AS high",
    "stddev(price) AS spread",
)

GROUPS = (("symbol",), ("exchange",), ("symbol", "side"), ("exchange", "side"), ("symbol", "exchange"), ())


@dataclass(frozen=True)
class Shape:
    """A workload with what it was drawn from."""

    keys: int
    queries: int
    filters: int
    groups: int
    primes: bool
    workload: Workload

    @property
    def title(self) -> str:
        slides = "primes" if self.primes else "divisors"
        return f"{self.queries} queries, {self.filters} filters × {self.groups} group-bys, {self.keys} keys, {slides}"


def drawn(chance: random.Random, streams: dict[int, Stream]) -> Shape:
    """A shape."""
    keys = chance.choice(list(streams))
    queries = chance.choice((3, 8, 20, 40))
    filters = chance.choice((1, 1, 3, 8, 16))
    groups = chance.randint(1, min(4, len(GROUPS)))
    primes = chance.random() < 0.3
    where_clauses = ["", *(f"WHERE {_filter(chance)} " for _ in range(filters - 1))]
    by = chance.sample(GROUPS, groups)
    slides = (7, 11, 13, 17, 23) if primes else (1, 2, 5, 10, 30, 60)
    texts = []
    for number in range(queries):
        slide = chance.choice(slides)
        range_ = slide * chance.choice((1, 2, 3, 6, 12))
        columns = chance.choice(by)
        chosen = ", ".join(chance.sample(OUTPUTS, chance.randint(1, 3)))
        selected = "".join(f"{column}, " for column in columns)
        grouped = f"GROUP BY {', '.join(columns)}" if columns else ""
        texts.append(
            f"-- name: q{number}\nSELECT {selected}{chosen} FROM trades WINDOW RANGE '{range_} minutes' "
            f"SLIDE '{slide} minutes' ON ts {chance.choice(where_clauses)}{grouped};"
        )
    parsed = parse("\n".join(texts), {"trades": streams[keys]})
    return Shape(keys, queries, filters, groups, primes, Workload(parsed.queries, (streams[keys],)))


def _filter(chance: random.Random) -> str:
    kind = chance.randrange(3)
    if kind == 0:
        return f"price > {chance.randint(10, 40)}"
    if kind == 1:
        low = chance.randint(0, 4000)
        return f"volume BETWEEN {low} AND {low + chance.randint(200, 2000)}"
    return f"exchange IN ({', '.join(repr(f'X{each:02d}') for each in chance.sample(range(12), chance.randint(1, 6)))})"


def plans(shape: Shape, events: int) -> dict[str, tuple[SharingPlan, int | None]]:
    """The plan of each choice, and what rolling up is said to cost (None: what it does)."""
    rates = {"trades": Fraction(events * SECOND, DAY)}
    model = model_of("measured", [])
    together, alone = (build_plan(shape.workload, rates, algorithm) for algorithm in ("shared", "no-share"))
    profiles = profiles_of(shape.workload, rates, model)
    chosen = build_plan(shape.workload, rates, "best", model, profiles=profiles)
    return {"atoms": (together, 0), "families": (together, 10**9), "alone": (alone, 10**9), "chosen": (chosen, None)}


def spent(plan: SharingPlan, roll_up: int | None, root: Path) -> float:
    """CPU seconds of partials and finals of a day in a fresh warehouse."""
    warehouse = Warehouse.open(root)
    version, _ = publish_plan(warehouse, plan)
    cost = fill_request.ROLL_UP_COST if roll_up is None else roll_up
    with mock.patch.object(fill_request, "ROLL_UP_COST", cost):
        record = run(
            Engine("shapes"),
            warehouse,
            version,
            DAY_START,
            DAY_START + DAY,
            "shape",
            as_of=DAY_START + 2 * DAY,
            checks="none",
        )
    shutil.rmtree(root)
    return record.cpu_seconds["partials"] + record.cpu_seconds["finals"]


def main() -> int:
    """Measure and print; the exit code."""
    parser = argparse.ArgumentParser(description="each choice of generated shapes, forced and chosen")
    parser.add_argument("--shapes", type=int, default=40)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data", type=Path, default=Path("var/bench"))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    console, chance = Console(width=None if sys.stdout.isatty() else 160), random.Random(options.seed)
    streams = {keys: generate(options.data, options.events, keys) for keys in (20, 200, 5000)}
    shapes = [drawn(chance, streams) for _ in range(options.shapes)]
    table = Table("shape", *("atoms", "families", "alone", "chosen"), "chosen / cheapest")
    document, ratios, missed = [], list[float](), 0
    with tempfile.TemporaryDirectory(dir=options.data) as folder:
        for shape in shapes:
            choices, seconds = plans(shape, options.events), dict[str, list[float]]()
            for number in range(options.rounds + 1):
                for name, (plan, roll_up) in choices.items():
                    took = spent(plan, roll_up, Path(folder) / "house")
                    if number:
                        seconds.setdefault(name, []).append(took)
            least = {name: min(times) for name, times in seconds.items()}
            cheapest = min(cost for name, cost in least.items() if name != "chosen")
            ratios.append(least["chosen"] / cheapest)
            short = least["chosen"] > GOAL * cheapest + NOISE
            missed += short
            mark = " missed" if short else ""
            table.add_row(shape.title, *(f"{least[name]:.2f}" for name in least), f"{ratios[-1]:.2f}{mark}")
            document.append({"shape": shape.title, "seconds": seconds})
            if options.json is not None:
                options.json.write_text(json.dumps(document, indent=1))
    console.print(table)
    console.print(f"median {median(ratios):.2f}, worst {max(ratios):.2f}; {missed} of {len(ratios)} missed")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
