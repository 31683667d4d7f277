"""How much tests try: `make test` little and always the same, `make test-all` much and at random.

The environment variable HEDDLE_TESTS names the profile:

- ``quick`` (the default). A generated test draws the same examples each time, so that it never fails at a change that
  has nothing to do with it. Tasks of the fixture ``engine`` run in the driver's process.
- ``spark``. The same, but ``engine`` is the Spark session, and dear tests try more.
- ``thorough``. As ``spark``, with more examples, drawn at random.
"""

from __future__ import annotations

import os

from hypothesis import Phase, settings
from hypothesis.internal.conjecture import providers

QUICK, SPARK, THOROUGH = "quick", "spark", "thorough"
PROFILE = os.environ.get("HEDDLE_TESTS", QUICK)
MANY = 10
"""Thorough tests try so many times as much, where nothing else is said."""

for _name in (QUICK, SPARK):
    settings.register_profile(_name, derandomize=True, database=None, max_examples=50, deadline=None, print_blob=True)
if PROFILE != THOROUGH:
    # Hypothesis draws constants of the modules that are loaded, so other examples after a change of any, or in another
    # order of the tests
    providers.is_local_module_file = lambda path: False
settings.register_profile("unshrunk", settings.get_profile(QUICK), phases=(Phase.explicit, Phase.reuse, Phase.generate))
settings.register_profile(THOROUGH, max_examples=50 * MANY, deadline=None, print_blob=True)


def examples(quick: int, thorough: int | None = None, slow: int | None = None) -> int:
    """The number of examples, steps or seeds that a test tries in this profile.

    ``slow``: what a dear test tries in ``make test-slow``, ``quick`` unless it is given. Such a test has the fixture
    ``engine`` or the mark ``longer`` or ``reduced``, or ``make test-slow`` does not run it.
    ``thorough``: ten times as much unless it is given.
    """
    more = quick if slow is None else slow
    if PROFILE == THOROUGH:
        return MANY * more if thorough is None else thorough
    return quick if PROFILE == QUICK else more
