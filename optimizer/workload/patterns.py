"""Regular expressions that queries may have: what RE2, Java and DuckDB read alike, in time linear in the text.

A pattern is read into its parts and written out again, so no engine sees what its author wrote: ``.`` as any character
but a line feed, ``\\d \\w \\s`` as their ASCII characters, every group without a number. Look-around, references to
groups, word boundaries and flags are none of it: engines differ in them, or need exponential time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from optimizer.errors.diagnostics import HeddleError

LONGEST_PATTERN = 256
"""Characters of a pattern."""

MOST_REPEATED = 1000
"""Most occurrences of a part after its counted repetitions, nested ones multiplied: the limit of RE2."""

DEEPEST = 16
"""Groups inside one another."""

_CLASSES = {"d": "0-9", "w": "0-9A-Za-z_", "s": r" \t\n\f\r"}
_CONTROLS = {"n": r"\n", "t": r"\t", "r": r"\r", "f": r"\f"}
_META = r"\.^$|?*+()[]{}-&~#/ \"'!%,:;<=>@_`"
_COUNT = re.compile(r"\{(\d{1,4})(?:(,)(\d{1,4})?)?\}", re.ASCII)


def readable_pattern(text: str) -> str:
    """A pattern as every engine reads it. Raises HDL-110 with what is not allowed, and where."""
    if len(text) > LONGEST_PATTERN:
        raise _refused(f"has {len(text)} characters; the limit is {LONGEST_PATTERN}")
    reader = _PatternReader(text)
    written, _ = reader.alternatives(0)
    if reader.at < len(text):
        raise reader.refused("closes a group that was never opened")
    return written


def _refused(message: str) -> HeddleError:
    hint = r"allowed: . [a-z] [^a-z] \d \w \s ( ) | * + ? {2,5} ^ $; a backslash before other signs"
    return HeddleError("HDL-110", f"the regular expression {message}", hint)


@dataclass
class _PatternReader:
    """Reads a pattern from ``at`` on; every method returns what it read as it is written, and how large it is."""

    text: str
    at: int = 0

    def refused(self, message: str) -> HeddleError:
        return _refused(f"{message}: {self.text[self.at : self.at + 8]!r}, its character {self.at + 1}")

    def next(self) -> str:
        return self.text[self.at : self.at + 1]

    def alternatives(self, depth: int) -> tuple[str, int]:
        written, size = self.sequence(depth)
        while self.next() == "|":
            self.at += 1
            other, more = self.sequence(depth)
            written, size = f"{written}|{other}", size + more
        return written, size

    def sequence(self, depth: int) -> tuple[str, int]:
        written, size = list[str](), 0
        while self.next() and self.next() not in "|)":
            part, more = self.repeated(depth)
            written.append(part)
            size += more
        return "".join(written), size

    def repeated(self, depth: int) -> tuple[str, int]:
        is_anchor = self.next() in "^$"
        part, size = self.part(depth)
        if self.next() in tuple("*+?"):
            suffix = self.next()
            self.at += 1
        elif self.next() == "{":
            count = _COUNT.match(self.text, self.at)
            most = 0 if count is None else max(int(count[1]), int(count[3] or 0))
            if (
                count is None
                or not size * max(1, most) <= MOST_REPEATED
                or (count[3] and int(count[3]) < int(count[1]))
            ):
                raise self.refused("repeats a part wrongly or too often")
            suffix, size = count[0], size * max(1, most)
            self.at = count.end()
        else:
            return part, size
        if is_anchor:
            raise self.refused("repeats a place")
        if self.next() == "?":
            self.at += 1
        if self.next() in tuple("*+?{"):
            raise self.refused("repeats a repetition")
        return part + suffix, size

    def part(self, depth: int) -> tuple[str, int]:
        character = self.next()
        if character == "(":
            return self.group(depth)
        if character == "[":
            return self.characters(), 1
        if character == "\\":
            return self.escaped(), 1
        if character in "*+?{":
            raise self.refused("repeats nothing")
        self.at += 1
        # } and ] stand for themselves in some engines only
        special = {".": r"[^\n]", "^": "^", "$": r"\z", "]": r"\]", "}": r"\}"}
        return special.get(character, re.escape(character) if character.isascii() else character), 1

    def group(self, depth: int) -> tuple[str, int]:
        if depth == DEEPEST:
            raise self.refused(f"has groups more than {DEEPEST} deep")
        plain = self.text.startswith("(?:", self.at)
        if not plain and self.text.startswith("(?", self.at):
            raise self.refused("looks around, names a group or sets a flag")
        self.at += 3 if plain else 1
        written, size = self.alternatives(depth + 1)
        if self.next() != ")":
            raise self.refused("never closes a group")
        self.at += 1
        return f"(?:{written})", max(1, size)

    def escaped(self) -> str:
        name = self.text[self.at + 1 : self.at + 2]
        if name.lower() in _CLASSES and name:
            expression = f"[{'^' if name.isupper() else ''}{_CLASSES[name.lower()]}]"
        else:
            expression = self.literal_escape(name)
        self.at += 2
        return expression

    def literal_escape(self, name: str) -> str:
        if name in _CONTROLS:
            return _CONTROLS[name]
        if not name or name not in _META:
            raise self.refused("has an escape that engines read differently")
        return re.escape(name)

    def characters(self) -> str:
        """A class of characters in brackets."""
        self.at += 1
        negated = self.next() == "^"
        self.at += negated
        members = list[str]()
        while self.next() != "]":
            members.append(self.one_of())
            if self.next() == "-" and self.text[self.at + 1 : self.at + 2] not in ("]", ""):
                self.at += 1
                low, high = members[-1], self.one_of()
                classes = {*_CLASSES.values(), *_CONTROLS.values()}
                if low in classes or high in classes or ord(low[-1]) > ord(high[-1]):
                    raise self.refused("has no such range of characters")
                members[-1] += "-" + high
        if not members:
            raise self.refused("has brackets without characters")
        self.at += 1
        return f"[{'^' if negated else ''}{''.join(members)}]"

    def one_of(self) -> str:
        character = self.next()
        if character == "":
            raise self.refused("never closes a bracket")
        if character == "[":
            raise self.refused("has brackets inside brackets")
        if character == "\\":
            name = self.text[self.at + 1 : self.at + 2]
            expression = _CLASSES[name] if name in _CLASSES else self.literal_escape(name)
            self.at += 2
            return expression
        self.at += 1
        return re.escape(character) if character.isascii() else character
