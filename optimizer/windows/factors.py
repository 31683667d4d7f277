"""Edges of progressions divided by prime factors of their slides, so that parts without common factors multiply."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from optimizer.windows.alignment import Progression

_SMALL_PRIMES = tuple(n for n in range(2, 1000) if all(n % d for d in range(2, math.isqrt(n) + 1)))


class BudgetSpent(Exception):
    """The work allowed for one count is used up."""


Branches = list[tuple[int, list[list[Progression]]]]
"""(residues, components of what is left of a problem at each of them)."""


class Factors:
    """Decomposition of sets of progressions: factors of slides, components, residue classes.

    Slides are products of powers of pairwise coprime factors, learnt as slides appear: small primes by trial
    division; larger parts are separated only by gcds, so that a large slide costs little.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, tuple[tuple[int, int], ...]]] = {}
        self._divisors: dict[int, tuple[int, ...] | None] = {}
        self._bits: dict[int, int] = {}
        self.work = 0
        self.limit = 0.0
        # factors without small primes, with the slides they occur in, and their product
        self._large: dict[int, list[int]] = {}
        self._product = 1

    def learn(self, slide: int) -> tuple[int, tuple[tuple[int, int], ...]]:
        """The factors of a slide as bits, and (factor, its power in the slide) for each."""
        known = self._known.get(slide)
        if known is not None:
            return known
        unfactored, powers = slide, []
        for prime in _SMALL_PRIMES:
            if prime * prime > unfactored:
                break
            if unfactored % prime == 0:
                power = prime
                unfactored //= prime
                while unfactored % prime == 0:
                    power *= prime
                    unfactored //= prime
                powers.append((prime, power))
        if 1 < unfactored <= _SMALL_PRIMES[-1]:
            powers.append((unfactored, unfactored))
        elif unfactored > 1:
            if unfactored not in self._large:
                self._refine(unfactored)
            for factor in (unfactored,) if unfactored in self._large else self._large:
                power = 1
                while unfactored % factor == 0:
                    power *= factor
                    unfactored //= factor
                if power > 1:
                    powers.append((factor, power))
                    self._large[factor].append(slide)
        bits = 0
        for factor, _ in powers:
            bits |= 1 << self._bits.setdefault(factor, len(self._bits))
        self._known[slide] = bits, tuple(powers)
        return self._known[slide]

    def _refine(self, number: int) -> None:
        """Make a number a product of powers of the large factors, which stay pairwise coprime."""
        pending = [number]
        while pending:
            number = pending.pop()
            if number == 1 or number in self._large:
                continue
            if math.gcd(number, self._product % number) == 1:
                self._large[number] = []
                self._product *= number
                continue
            factor, shared = next((f, g) for f in self._large if (g := math.gcd(number, f)) > 1)
            pending.append(number // shared)
            if shared != factor:
                for slide in self._large.pop(factor):
                    self._known.pop(slide, None)
                    self._divisors.pop(slide, None)
                self._product //= factor
                pending += [shared, factor // shared]

    def absorb(self, progressions: Iterable[Progression]) -> list[Progression]:
        """Drop progressions inside others; sorted. Linear but for the divisors of each slide."""
        shifts: dict[int, set[int]] = {}
        for slide, shift in progressions:
            shifts.setdefault(slide, set()).add(shift)
        self._absorb(shifts, shifts)
        return [(slide, shift) for slide in sorted(shifts) for shift in sorted(shifts[slide])]

    def _absorb(self, shifts: dict[int, set[int]], others: dict[int, set[int]]) -> None:
        """Take out of ``shifts`` what lies inside ``others``, both by slide."""
        small = sorted(others)
        for slide in sorted(shifts):
            divisors = self._proper_divisors(slide)
            for divisor in small if divisors is None or len(small) < len(divisors) else divisors:
                if divisor >= slide:
                    break
                inside = others.get(divisor)
                if inside and slide % divisor == 0:
                    shifts[slide] = {shift for shift in shifts[slide] if shift % divisor not in inside}

    def _proper_divisors(self, slide: int) -> tuple[int, ...] | None:
        """Divisors between 1 and the slide, ascending; None if there are many."""
        if slide not in self._divisors:
            divisors: list[int] | None = [1]
            for factor, power in self.learn(slide)[1]:
                if divisors is not None:
                    powers = [1]
                    while powers[-1] < power:
                        powers.append(powers[-1] * factor)
                    divisors = [a * b for a in divisors for b in powers] if len(divisors) * len(powers) <= 128 else None
            self._divisors[slide] = None if divisors is None else tuple(sorted(divisors)[1:-1])
        return self._divisors[slide]

    def components(self, progressions: Iterable[Progression]) -> list[tuple[int, list[Progression]]]:
        """Sets whose slides share no factor, each with its factors as bits; single progressions first."""
        known, learn = self._known, self.learn
        once = twice = 0
        numbered = []
        for progression in progressions:
            bits = (known.get(progression[0]) or learn(progression[0]))[0]
            twice |= once & bits
            once |= bits
            numbered.append((bits, progression))
        single = []
        groups: list[tuple[int, list[Progression]]] = []
        for bits, progression in numbered:
            if not bits & twice:
                single.append((bits, [progression]))
                continue
            for index, group in enumerate(groups):  # noqa: B007 (used below)
                if group[0] & bits:
                    break
            else:
                groups.append((bits, [progression]))
                continue
            group[1].append(progression)
            if bits & ~group[0]:
                bits |= group[0]
                apart = groups[:index]
                for other in groups[index + 1 :]:
                    if other[0] & bits:
                        bits |= other[0]
                        group[1].extend(other[1])
                    else:
                        apart.append(other)
                # the largest group first: most progressions belong there
                groups = [(bits, group[1]), *apart]
        return single + sorted(groups, key=lambda group: len(group[1]))

    def spend(self, work: int) -> None:
        """Count work that was done. Raises BudgetSpent beyond the limit."""
        self.work += work
        if self.work > self.limit:
            raise BudgetSpent

    def parts(self, progressions: Sequence[Progression]) -> list[list[Progression]]:
        """The components of slides that may be new."""
        for slide, _ in progressions:
            # a slide may refine the factors of others: all have to be known before any are compared
            self.learn(slide)
        return [part for _, part in self.components(progressions)]

    def split(self, component: Sequence[Progression]) -> tuple[int, Branches]:
        """Fix the residue of time modulo a number: (that number, [(residues, remaining components)]).

        The progressions that remain at a residue are absorbed and split into components. Residues that are always
        hit are omitted.
        """
        shared = math.gcd(*[slide for slide, _ in component])
        if shared > 1:
            residues: dict[int, list[Progression]] = {}
            for slide, shift in component:
                residues.setdefault(shift % shared, []).append((slide // shared, shift // shared))
            branches: Branches = [(1, self.parts(progressions)) for progressions in residues.values()]
            if len(residues) < shared:
                branches.append((shared - len(residues), []))
            return shared, branches
        self.spend(len(component))
        factor = self._pivot(component)
        free: list[Progression] = []
        members: dict[tuple[int, int], list[Progression]] = {(1, 0): []}
        for slide, shift in component:
            if slide % factor:
                free.append((slide, shift))
                continue
            power = factor
            reduced_slide = slide // factor
            while reduced_slide % factor == 0:
                power *= factor
                reduced_slide //= factor
            residue_class = power, shift % power
            if residue_class in members:
                members[residue_class].append((reduced_slide, shift % reduced_slide))
            else:
                members[residue_class] = [(reduced_slide, shift % reduced_slide)]
        classes = sorted(members)
        top = classes[-1][0]
        # own: residues modulo `top` in a class and in none of its finer classes. Coarse classes come first:
        # each takes its residues from the finest class so far that contains it
        own: dict[tuple[int, int], int] = {}
        chain: dict[tuple[int, int], list[Progression]] = {}
        for residue_class in classes:
            power, residue = residue_class
            parent, coarser = (1, 0), power // factor
            while coarser > 1:
                if (coarser, residue % coarser) in own:
                    parent = coarser, residue % coarser
                    break
                coarser //= factor
            if power == 1:
                own[residue_class], chain[residue_class] = top, []
            else:
                own[residue_class] = top // power
                own[parent] -= top // power
                above = chain[parent]
                chain[residue_class] = above + members[residue_class] if above else members[residue_class]
        parts = self.components(free)
        by_slide: dict[int, set[int]] = {}
        for slide, shift in free:
            by_slide.setdefault(slide, set()).add(shift)
        branches = []
        for residue_class, count in own.items():
            if count:
                joined = self._join(parts, by_slide, chain[residue_class])
                if joined is not None:
                    branches.append((count, joined))
        return top, branches

    def _pivot(self, component: Sequence[Progression]) -> int:
        """The factor that divides most slides; where none divides many, one in the middle, to fall apart sooner."""
        frequency: dict[int, int] = {}
        known, learn = self._known, self.learn
        for slide, _ in component:
            for factor, _ in (known.get(slide) or learn(slide))[1]:
                frequency[factor] = frequency.get(factor, 0) + 1
        most = max(frequency.values())
        best = sorted([factor for factor, count in frequency.items() if count == most])
        return best[0] if most > 3 else best[len(best) // 2]

    def _join(
        self,
        parts: Sequence[tuple[int, list[Progression]]],
        by_slide: dict[int, set[int]],
        added: Sequence[Progression],
    ) -> list[list[Progression]] | None:
        """Absorb and split the union of ``parts`` (absorbed, split) and more; None if it hits everything."""
        if not added:
            return [part for _, part in parts]
        shifts: dict[int, set[int]] = {}
        bits = 0
        for slide, shift in added:
            slide_shifts = shifts.get(slide)
            if slide_shifts is None:
                if slide == 1:
                    return None
                shifts[slide] = {shift}
                bits |= self.learn(slide)[0]
            else:
                slide_shifts.add(shift)
        if len(shifts) > 1:
            self._absorb(shifts, shifts)
        apart = [part for group, part in parts if not group & bits]
        touched = [(group, part) for group, part in parts if group & bits]
        self.spend(len(added) + sum([len(part) for _, part in touched]))
        # what is added lies inside none of the parts: the set that all of them come from is absorbed
        for slide, inside in shifts.items():
            # every residue of one slide: nothing is missed
            if len(inside) + len(by_slide.get(slide, ())) == slide:
                return None
        units = []
        for group, part in touched:
            remaining = self._outside(part, shifts)
            # what lost nothing still hangs together
            units += [(group, part)] if len(remaining) == len(part) else self.components(remaining)
        for slide, inside in shifts.items():
            if inside:
                units.append((self.learn(slide)[0], [(slide, shift) for shift in inside]))
        return apart + _merged(units)

    def _outside(self, part: list[Progression], shifts: dict[int, set[int]]) -> list[Progression]:
        """The progressions of ``part`` that do not lie inside progressions of smaller slides, given by slide."""
        if len(shifts) <= 12:
            for slide, inside in shifts.items():
                if inside:
                    part = [p for p in part if p[0] % slide or p[1] % slide not in inside]
            return part
        shifts_by_slide: dict[int, set[int]] = {}
        for slide, shift in part:
            shifts_by_slide.setdefault(slide, set()).add(shift)
        self._absorb(shifts_by_slide, shifts)
        return [(slide, shift) for slide, slide_shifts in shifts_by_slide.items() for shift in slide_shifts]


def _merged(units: list[tuple[int, list[Progression]]]) -> list[list[Progression]]:
    """Join sets that share factors, given with their factors as bits; the sets themselves stay as they are."""
    once = twice = 0
    for bits, _ in units:
        twice |= once & bits
        once |= bits
    groups: list[tuple[int, list[Progression]]] = []
    for bits, members in units:
        if bits & twice:
            apart = []
            for group in groups:
                if group[0] & bits:
                    bits |= group[0]
                    members = group[1] + members
                else:
                    apart.append(group)
            groups = [(bits, members), *apart]
    separate = [members for bits, members in units if not bits & twice]
    return separate + [members for _, members in sorted(groups, key=lambda group: len(group[1]))]


def left_at(progressions: Iterable[Progression], slide: int, shift: int) -> list[Progression] | None:
    """Remaining progressions at the instants of another one; None if they hit them all.

    Progressions that meet it get the slide ``t / gcd(s, t)``. Time is rescaled modulo the factors of s only, so
    that the shifts modulo other factors, and with them most subproblems, stay the same.
    """
    remaining: dict[Progression, None] = {}
    for other, start in progressions:
        shared = math.gcd(slide, other)
        if shared == 1:
            remaining[other, start] = None
            continue
        apart = start - shift
        if apart % shared:
            continue
        reduced_slide = other // shared
        if reduced_slide == 1:
            return None
        if start == shift == 0:
            remaining[reduced_slide, 0] = None
            continue
        coprime = reduced_slide
        common = math.gcd(coprime, slide)
        while common > 1:
            coprime //= common
            common = math.gcd(coprime, common)
        if coprime == reduced_slide:
            remaining[reduced_slide, start % reduced_slide] = None
            continue
        # modulo the factors of the slide: k where shift + k * slide = start; modulo the others: start
        within = reduced_slide // coprime
        place = apart // shared * pow(slide // shared, -1, within) % within
        place += within * ((start - place) * pow(within, -1, coprime) % coprime)
        remaining[reduced_slide, place] = None
    return list(remaining)


def absorbed_in_ticks(progressions: Iterable[Progression]) -> tuple[tuple[Progression, ...], int]:
    """Absorbed progressions in ticks, and the tick: the gcd of all slides and distances between shifts."""
    ordered = sorted(set(progressions))
    if not ordered:
        return (), 1
    if ordered[0][0] <= 0:
        raise ValueError("slides must be positive")
    origin = ordered[0][1]
    unit = math.gcd(*(slide for slide, _ in ordered), *(shift - origin for _, shift in ordered))
    ticks = [(slide // unit, (shift - origin) % slide // unit) for slide, shift in ordered]
    return tuple(Factors().absorb(ticks)), unit


def common_period(progressions: Iterable[Progression]) -> int:
    """The least common multiple of the slides."""
    return math.lcm(*[slide for slide, _ in progressions])
