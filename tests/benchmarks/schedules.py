"""Measures how long schedules take to plan, and how far above a lower bound they are.

    python -m tests.benchmarks.schedules [--groups N] [--subgroups N] [--longest N] [--rounds N]

Random groups of sub-groups with periods up to ``--longest`` updates; costs of a run and of each execution besides the
scans, or none. CPU seconds, medians of the rounds; *above* is the cost over the lower bound, less one.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from optimizer.schedule.groups import Group, SubGroup
from optimizer.schedule.planner import plan_schedule


def drawn(chance: random.Random, groups: int, subgroups: int, longest: int, post: int) -> list[Group]:
    drawn_groups = []
    for place in range(groups):
        members = [
            SubGroup(chance.randint(2, longest), chance.randint(1, 1000), (f"q{place}_{number}",), post)
            for number in range(subgroups)
        ]
        drawn_groups.append(Group(f"g{place}", tuple(members)))
    return drawn_groups


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="planning of schedules")
    parser.add_argument("--groups", type=int, default=100)
    parser.add_argument("--subgroups", type=int, default=10)
    parser.add_argument("--longest", type=int, default=1440)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments)
    plan_schedule(1, drawn(random.Random(0), 2, 3, 9, 1), 1)  # compiled before it is measured
    table = Table(title=f"{options.groups} groups of {options.subgroups} sub-groups, periods up to {options.longest}")
    for name in ("costs", "CPU s", "above the bound", "proven"):
        table.add_column(name, justify="left" if name == "costs" else "right")
    for label, fixed, post in (("scans", 0, 0), ("and of a run", 500, 0), ("and of an execution", 500, 20)):
        seconds, above, proven = [], [], 0
        for number in range(options.rounds):
            groups = drawn(random.Random(number), options.groups, options.subgroups, options.longest, post)
            begun = time.process_time()
            schedule = plan_schedule(1, groups, fixed)
            seconds.append(time.process_time() - begun)
            above.append(float(schedule.cost / schedule.bound) - 1)
            proven += schedule.proven
        row = f"{statistics.median(seconds):.2f}", f"{statistics.median(above):.1%}", f"{proven} of {options.rounds}"
        table.add_row(label, *row)
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
