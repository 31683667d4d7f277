"""Texts as decimals, exactly: pyarrow's cast loses digits of some, and wraps round without an error."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation

import pyarrow as pa
import pyarrow.compute as pc

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def safe_decimal(target: pa.DataType) -> str:
    """Return the pattern of texts that pyarrow casts to a decimal without fault: no exponent, and no more digits than
    the type has. Of others it loses digits, or wraps round without an error."""
    return rf"[+-]?[0-9]{{0,{target.precision - target.scale}}}(\.[0-9]{{0,{target.scale}}})?"


def cast_texts(texts: pa.Array, target: pa.DataType) -> pa.Array:
    """Return texts as numbers, decimals exactly. Raises ArrowInvalid for a text that is none, or does not fit."""
    if not pa.types.is_decimal(target):
        return texts.cast(target)
    is_safe = pc.fill_null(pc.match_substring_regex(texts, f"^{safe_decimal(target)}$"), True)
    if not pc.all(is_safe, min_count=0).as_py():
        exact = pa.array([_plain(text.as_py(), target) for text in texts.filter(pc.invert(is_safe))], pa.string())
        texts = pc.replace_with_mask(texts, pc.invert(is_safe), exact)
    return texts.cast(target)


def _plain(text: str, target: pa.DataType) -> str:
    """A decimal number without an exponent and zeros at its ends. Raises ArrowInvalid if it does not fit."""
    try:
        sign, written, exponent = Decimal(text).as_tuple() if _NUMBER.fullmatch(text) else (0, (), "")
    except InvalidOperation:
        exponent = ""
    if not isinstance(exponent, int):
        raise pa.ArrowInvalid("not a number")
    digits = "".join(map(str, written)).lstrip("0")
    exponent += len(digits) - len(digits.rstrip("0"))
    digits = digits.rstrip("0")
    if not digits:
        return "0"
    if -exponent > target.scale or len(digits) + exponent > target.precision - target.scale:
        raise pa.ArrowInvalid("it has too many digits")
    whole_digits = digits + "0" * exponent if exponent >= 0 else digits[:exponent]
    fraction = digits[exponent:].rjust(-exponent, "0") if exponent < 0 else ""
    return f"{'-' * sign}{whole_digits or '0'}.{fraction or '0'}"
