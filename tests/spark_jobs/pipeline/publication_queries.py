"""Queries by name, each with another kind of window, filter or stream."""

from __future__ import annotations

TEXTS = {
    "by_symbol": "SELECT symbol, count(*) AS n FROM trades WINDOW RANGE '25 minutes' SLIDE '10 minutes' ON ts "
    "GROUP BY symbol",
    "all": "SELECT sum(volume) AS s FROM trades WINDOW RANGE '40 minutes' SLIDE '20 minutes' ON ts WHERE volume > 3",
    "quoted": "SELECT max(price) AS high FROM quotes WINDOW RANGE '30 minutes' SLIDE '30 minutes' ON ts",
    "none": "SELECT count(*) AS n FROM trades WINDOW RANGE '10 minutes' SLIDE '10 minutes' ON ts WHERE volume > 100",
    "last": "SELECT avg(price) AS mean FROM trades WINDOW ROWS 20 SLIDE 20 ON ts",
}
