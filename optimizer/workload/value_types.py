"""Types of columns and answers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Type:
    """A column type: ``boolean``, ``long``, ``double``, ``string``, ``date``, ``timestamp`` or ``decimal``; of answers
    alone ``binary``.

    Narrow source types are widened on reading (``byte``, ``short``, ``int`` to ``long``, ``float`` to
    ``double``): ``digits`` keeps how many decimal digits an integer can have, so that exact arithmetic can
    be proven not to overflow; ``precision`` and ``scale`` belong to ``decimal`` alone.
    """

    name: str
    digits: int = 0
    precision: int = 0
    scale: int = 0

    @property
    def is_exact(self) -> bool:
        """Integers and decimals: sums are bit-exact."""
        return self.name in ("long", "decimal")

    @property
    def is_numeric(self) -> bool:
        return self.is_exact or self.name == "double"

    def __str__(self) -> str:
        if self.name == "decimal":
            return f"decimal({self.precision},{self.scale})"
        return {3: "byte", 5: "short", 10: "int"}.get(self.digits, self.name) if self.name == "long" else self.name


BOOLEAN, DOUBLE, STRING = Type("boolean"), Type("double"), Type("string")
DATE, TIMESTAMP, BINARY = Type("date"), Type("timestamp"), Type("binary")
BYTE, SHORT, INT, LONG = Type("long", 3), Type("long", 5), Type("long", 10), Type("long", 19)


def decimal(precision: int, scale: int) -> Type:
    """``decimal(precision, scale)``, 1 <= precision <= 38, 0 <= scale <= precision."""
    if not (1 <= precision <= 38 and 0 <= scale <= precision):
        raise ValueError(f"decimal({precision},{scale}) is out of range")
    return Type("decimal", 0, precision, scale)
