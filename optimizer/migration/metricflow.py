"""Metrics of dbt's semantic layer (MetricFlow), in YAML or in its manifest, as queries: one for each metric."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import yaml
from sqlglot import exp

from optimizer.errors.diagnostics import HeddleError
from optimizer.language.refusals import Refused, shown_text
from optimizer.migration.binding import Grouped, Relation
from optimizer.migration.documents import (
    Definition,
    Reporter,
    column_named,
    elements,
    expression_in,
    members,
    path_of,
    place,
    text_of,
    words_near,
)
from optimizer.migration.joins import conjuncts
from optimizer.migration.spans import TimeSpan, fixed_span
from optimizer.migration.windows import ImportedWindow
from optimizer.migration.words import DIFFERS, LEFT_OUT
from optimizer.migration.writing import valid_name
from optimizer.workload.instants import DAY, calendar_text, parse_calendar_span, parse_duration

GRAINS = ("second", "minute", "hour", "day", "week", "month", "quarter", "year")

MOST_MEASURES = 128
"""Aggregates of one metric, at most."""

MOST_DEEP = 16
"""Metrics that one is made of, one of the next, at most."""

_CALENDAR = GRAINS[4:]

_AGGREGATES = {"sum": "sum", "min": "min", "max": "max", "average": "avg", "median": "median", "count": "count"}

_REFERENCE = re.compile(
    r"\{\{\s*(Dimension|TimeDimension|Entity|Metric)\s*\(\s*['\"]([^'\"]*)['\"]([^{}]*)\)[^{}]*\}\}", re.IGNORECASE
)
_TABLE = re.compile(r"(?:ref|source)\s*\(.*?['\"]([^'\"]+)['\"]\s*(?:,\s*v(?:ersion)?\s*=\s*\w+\s*)?\)\s*(?:\}\})?\s*$")

_JOINED = "declare it below `dimensions:` in streams.yaml, and join it in the query"


@dataclass(frozen=True)
class _Model:
    """A semantic model. ``table``: the last part of its table's name."""

    name: str
    node: yaml.Node
    table: str
    entities: frozenset[str]
    dimensions: dict[str, yaml.Node]
    measures: dict[str, yaml.Node]

    def value(self, name: str, at: int) -> exp.Expr:
        """The expression of a dimension or of an entity."""
        node = self.dimensions.get(name)
        if node is None:
            hint = _JOINED if "__" in name else "name a dimension of the semantic model"
            raise Refused("HDL-142", f"{shown_text(name)} is no dimension of {self.name}", hint, at)
        expr = path_of(node, "expr")
        return expression_in(expr) if expr is not None else column_named(text_of(path_of(node, "name")))

    def time(self, measure: yaml.Node) -> tuple[str, str]:
        """The column of the time that a measure goes by, and its grain."""
        name = text_of(path_of(measure, "agg_time_dimension"))
        name = name or text_of(path_of(self.node, "defaults", "agg_time_dimension"))
        node = self.dimensions.get(name)
        if node is None:
            hint = "set defaults: {agg_time_dimension: …} in the semantic model"
            raise Refused("HDL-144", f"{self.name} names no time dimension for the measure", hint, place(measure))
        value = self.value(name, place(measure)).unnest()
        while isinstance(value, exp.Cast | exp.TryCast):
            value = value.this.unnest()
        if not isinstance(value, exp.Column):
            hint = "declare the column as timestamp in streams.yaml"
            raise Refused("HDL-144", f"the time {name} is computed, not a column", hint, place(node))
        grain = text_of(path_of(node, "type_params", "time_granularity"), "day").lower()
        return value.this.sql(dialect="spark"), grain


@dataclass(frozen=True)
class _Input:
    """Use of a metric in another: what filters it, and how long before its window ended, in microseconds and months."""

    filters: tuple[exp.Expr, ...] = ()
    ago: int = 0
    months: int = 0
    grain: str = ""
    span: TimeSpan | None = None
    depth: int = 0


@dataclass
class _Query:
    """Query while the metrics are read that it gives."""

    layer: _Layer
    model: _Model | None = None
    time: str = ""
    grain: str = ""
    leaves: list[tuple[exp.Expr, tuple[exp.Expr, ...], TimeSpan]] = field(default_factory=list)
    is_sparse: bool = False

    # ------------------------------------------------------------------------------------------ metrics
    def metric(self, name: str, given: _Input, at: int) -> exp.Expr:
        """The value of a metric by its name; its aggregates are placeholders with their numbers."""
        node = self.layer.metrics.get(name)
        if node is None and name in self.layer.measures:
            return self._measure(name, given, at)
        if node is None:
            raise Refused("HDL-146", f"there is no metric {shown_text(name)} in this file", "import the manifest", at)
        if given.depth > MOST_DEEP:
            raise Refused("HDL-303", "metrics are made of metrics too deeply", "write the metric out", at)
        parameters = members(node).get("type_params") or node
        kind = text_of(path_of(node, "type"), "simple").lower()
        model = self._model_of(node)
        given = replace(
            given,
            filters=given.filters + self._filters(node, model),
            grain=given.grain or _grain(node),
            depth=given.depth + 1,
        )
        if kind == "simple":
            return self._simple(parameters, given, at)
        if kind == "cumulative":
            return self._cumulative(parameters, given)
        if kind == "ratio":
            parts = [path_of(parameters, key) for key in ("numerator", "denominator")]
            values = [self._input(part, given, node) for part in parts]
            return exp.Div(this=_inside(values[0]), expression=_inside(values[1]))
        if kind == "derived":
            return self._derived(parameters, given, node)
        hint = "PATTERN SEQ(…) counts events that follow one another"
        raise Refused("HDL-143", f"a metric of type {kind}", hint, place(node))

    def _model_of(self, node: yaml.Node | None, depth: int = 0) -> _Model | None:
        """The semantic model of a metric's first measure, whose dimensions its filters name."""
        parameters = path_of(node, "type_params") or node
        measure = path_of(parameters, "measure")
        name = text_of(path_of(measure, "name")) or text_of(measure)
        if name in self.layer.measures or depth > MOST_DEEP:
            return self.layer.measures.get(name)
        parts = [*elements(path_of(parameters, "metrics")), path_of(parameters, "numerator")]
        names = [text_of(path_of(part, "name")) or text_of(part) for part in parts if part is not None]
        metrics = self.layer.metrics
        models = (self._model_of(metrics[each], depth + 1) for each in names[:1] if each in metrics)
        return next(models, self.model)

    def _simple(self, parameters: yaml.Node, given: _Input, at: int) -> exp.Expr:
        measure = path_of(parameters, "measure")
        if measure is None:
            hint = "read target/semantic_manifest.json of a project with measures"
            raise Refused("HDL-146", "a metric without a measure", hint, place(parameters))
        name = text_of(path_of(measure, "name")) or text_of(measure)
        model = self.layer.measures.get(name)
        filters = given.filters + self._filters(measure, model)
        value = self._measure(name, replace(given, filters=filters), place(measure))
        self.is_sparse |= text_of(path_of(measure, "join_to_timespine")) == "true"
        fill = path_of(measure, "fill_nulls_with")
        return value if fill is None else exp.Anonymous(this="coalesce", expressions=[value, expression_in(fill)])

    def _cumulative(self, parameters: yaml.Node, given: _Input) -> exp.Expr:
        inner = path_of(parameters, "cumulative_type_params")
        window = path_of(inner, "window") or path_of(parameters, "window")
        to_date = path_of(inner, "grain_to_date") or path_of(parameters, "grain_to_date")
        at = place(window or to_date or parameters)
        if to_date is not None:
            unit = text_of(to_date).lower()
            if unit not in _CALENDAR or given.ago or given.months:
                raise Refused("HDL-144", f"a metric to date of a {unit}", "week, month, quarter and year are", at)
            span = TimeSpan(f"this_{unit}", f"CUMULATE '1 {unit}'", "so far")
        elif window is not None and given.months:
            raise Refused("HDL-144", "a window of days that ended months ago", "offset_window: 28 days", at)
        elif window is not None:
            length = self._length(window)
            span = fixed_span(-length - given.ago, -given.ago, "days")
        else:
            hint = "give it a window: 365 days, or grain_to_date: year"
            raise Refused("HDL-141", "a cumulative metric of all time", hint, at)
        if path_of(parameters, "measure") is None:
            base = path_of(inner, "metric") or path_of(parameters, "metric")
            return self._input(base, replace(given, ago=0, span=span), parameters)
        return self._simple(parameters, replace(given, span=span), at)

    def _length(self, node: yaml.Node) -> int:
        """Microseconds of a window or an offset."""
        count, unit = text_of(path_of(node, "count")), text_of(path_of(node, "granularity"))
        text = text_of(node) or f"{count} {unit}"
        try:
            return parse_duration(text)
        except HeddleError as error:
            raise Refused("HDL-144", f"a length of {shown_text(text)}", error.diagnostic.hint, place(node)) from None

    def _offset(self, node: yaml.Node) -> tuple[int, int]:
        """Microseconds and months of an offset."""
        count, unit = text_of(path_of(node, "count")), text_of(path_of(node, "granularity"))
        try:
            span = parse_calendar_span(text_of(node) or f"{count} {unit}")
        except HeddleError:
            span = None
        return (0, span[0]) if span is not None and span[1] == "month" else (self._length(node), 0)

    def _input(self, node: yaml.Node | None, given: _Input, near: yaml.Node) -> exp.Expr:
        """The value of a metric that another is made of."""
        if node is None:
            raise Refused("HDL-146", "a metric lacks one that it is made of", "", place(near))
        name = text_of(path_of(node, "name")) or text_of(node)
        if path_of(node, "offset_to_grain") is not None:
            hint = "offset_window: 7 days is ENDING '7 days' AGO"
            raise Refused("HDL-144", "an offset to the beginning of a unit", hint, place(node))
        offset = path_of(node, "offset_window")
        ago, months = (0, 0) if offset is None else self._offset(offset)
        target = self.layer.metrics.get(name)
        filters = self._filters(node, self._model_of(target) if target is not None else self.model)
        made = replace(given, filters=given.filters + filters, ago=given.ago + ago, months=given.months + months)
        return self.metric(name, made, place(node))

    def _derived(self, parameters: yaml.Node, given: _Input, node: yaml.Node) -> exp.Expr:
        expr = path_of(parameters, "expr")
        if expr is None:
            raise Refused("HDL-146", "a derived metric without an expr", "", place(node))
        inputs = {
            text_of(path_of(part, "alias")) or text_of(path_of(part, "name")) or text_of(part): part
            for part in elements(path_of(parameters, "metrics") or path_of(parameters, "input_metrics"))
        }

        def put_in(part: exp.Expr) -> exp.Expr:
            if not isinstance(part, exp.Column):
                return part
            if part.name not in inputs:
                raise Refused("HDL-202", f"{shown_text(part.name)} is none of the metrics", "", place(expr))
            return _inside(self._input(inputs[part.name], given, node))

        wrapped = exp.Paren(this=expression_in(expr)).transform(put_in, copy=False)
        inner: exp.Expr = wrapped.this
        return inner

    # ----------------------------------------------------------------------------------------- measures
    def _measure(self, name: str, given: _Input, at: int) -> exp.Expr:
        """The placeholder of a measure's aggregate."""
        model = self.layer.measures.get(name)
        if model is None:
            raise Refused("HDL-146", f"there is no measure {shown_text(name)} in this file", "import the manifest", at)
        if self.model not in (None, model):
            hint = "import a metric of each, and compute with their answers when you read: heddle sql"
            message = f"measures of two semantic models: {self.model.name} and {model.name}" if self.model else ""
            raise Refused("HDL-142", message, hint, at)
        node = model.measures[name]
        time, grain = model.time(node)
        grain = given.grain or grain
        if self.time not in ("", time):
            raise Refused("HDL-144", f"measures by two times: {self.time} and {time}", "write two metrics", at)
        if grain not in GRAINS:
            raise Refused("HDL-144", f"a grain of {shown_text(grain)}", f"one of {', '.join(GRAINS)}", at)
        self.model, self.time = model, time
        self.grain = max(self.grain or grain, grain, key=GRAINS.index)
        if len(self.leaves) >= MOST_MEASURES:
            raise Refused("HDL-310", f"more than {MOST_MEASURES} aggregates in a metric", "", at)
        span = given.span or self._tumbling(grain, given.ago, given.months, at)
        self.leaves.append((self._call(model, node), given.filters, span))
        return exp.Placeholder(this=f"leaf{len(self.leaves) - 1}")

    def _tumbling(self, grain: str, ago: int, months: int, at: int) -> TimeSpan:
        """The span of a grain that ended a number of its units ago."""
        if grain not in _CALENDAR and not months:
            length = parse_duration(f"1 {grain}")
            return fixed_span(-length - ago, -ago, "days")
        name, text, (size, unit) = f"last_1_{grain}", f"RANGE '1 {grain}'", parse_calendar_span(f"1 {grain}") or (0, "")
        back, other = (months, ago) if unit == "month" else (ago // DAY, months or ago % DAY)
        if grain not in _CALENDAR or other or back % size:
            hint = "take an offset in the unit of the grain: days, or months for a grain of months"
            raise Refused("HDL-144", f"a {grain} that ended a length ago in which {grain}s do not fit", hint, at)
        if back:
            words = calendar_text((back, unit))
            name, text = f"{name}_{words}_ago".replace(" ", "_"), f"{text} ENDING '{words}' AGO"
        return TimeSpan(name, text, "units")

    def _call(self, model: _Model, node: yaml.Node) -> exp.Expr:
        """The aggregate of a measure."""
        name, expr = text_of(path_of(node, "name")), path_of(node, "expr")
        value = expression_in(expr) if expr is not None else column_named(name)
        aggregate = text_of(path_of(node, "agg")).lower()
        if path_of(node, "non_additive_dimension") is not None:
            hint = "last(x) is the latest value of a window"
            raise Refused("HDL-143", f"{name} is not additive over time", hint, place(node))
        if aggregate == "count_distinct":
            return exp.Anonymous(this="count", expressions=[exp.Distinct(expressions=[value])])
        if aggregate == "sum_boolean":
            count = exp.Anonymous(this="count", expressions=[exp.Star()])
            return exp.Filter(this=count, expression=exp.Where(this=value))
        if aggregate == "percentile":
            parameters = path_of(node, "agg_params")
            rank, discrete, approximate = (
                text_of(path_of(parameters, key))
                for key in ("percentile", "use_discrete_percentile", "use_approximate_percentile")
            )
            called = "percentile_disc" if discrete.lower() == "true" else "percentile"
            called = "approx_percentile" if approximate.lower() == "true" else called
            if not re.fullmatch(r"[01]?\.?\d{1,9}", rank):
                raise Refused("HDL-146", f"a percentile of {shown_text(rank)}", "0.5", place(node))
            return exp.Anonymous(this=called, expressions=[value, exp.Literal.number(rank)])
        if aggregate not in _AGGREGATES:
            raise Refused("HDL-104", f"there is no aggregate {shown_text(aggregate)}", "", place(node))
        return exp.Anonymous(this=_AGGREGATES[aggregate], expressions=[value])

    def _filters(self, node: yaml.Node, model: _Model | None) -> tuple[exp.Expr, ...]:
        """The conditions of a filter, in terms of the table."""
        filter = path_of(node, "filter")
        nodes = elements(filter) or elements(path_of(filter, "where_filters")) or ([filter] if filter else [])
        return tuple(
            part
            for each in nodes
            for part in conjuncts(self.layer.condition(path_of(each, "where_sql_template") or each, model))
        )

    # -------------------------------------------------------------------------------------------- query
    def relation(self, items: Sequence[tuple[str, exp.Expr]], keys: Sequence[tuple[str, exp.Expr]]) -> Relation:
        """The grouping that gives some values by some keys."""
        assert self.model is not None
        spans = list(dict.fromkeys(span for _, _, span in self.leaves))
        texts = [frozenset(part.sql() for part in filters) for _, filters, _ in self.leaves]
        common = frozenset.intersection(*texts)
        where = {part.sql(): part for part in self.leaves[0][1] if part.sql() in common}

        def leaf(part: exp.Expr) -> exp.Expr:
            if not isinstance(part, exp.Placeholder):
                return part
            call, filters, span = self.leaves[int(part.name.removeprefix("leaf"))]
            own = [condition for condition in filters if condition.sql() not in common]
            call = call.copy()
            if own and isinstance(call, exp.Filter):
                own, call = [*own, call.expression.this], call.this
            if own:
                call = exp.Filter(this=call, expression=exp.Where(this=exp.and_(*own)))
            return call if len(spans) == 1 else exp.Window(this=call, alias=exp.to_identifier(span.name))

        values = tuple((name, exp.Paren(this=value).transform(leaf, copy=False).this) for name, value in items)
        grouped = Grouped((tuple(value for _, value in keys),))
        window = ImportedWindow(self.time, self._clause(spans))
        return Relation(self.model.table, (*keys, *values), False, tuple(where.values()), window, grouped=grouped)

    def _clause(self, spans: Sequence[TimeSpan]) -> str:
        is_calendar = self.grain in _CALENDAR or any(span.text.startswith("CUMULATE") for span in spans)
        grain = self.grain
        if any(span.text.startswith("CUMULATE") for span in spans) and GRAINS.index(grain) < GRAINS.index("day"):
            grain = "day"
        zone = " IN 'UTC'" if is_calendar else ""
        if len(spans) > 1:
            return f"{', '.join(f'{span.name} AS ({span.text})' for span in spans)} SLIDE '1 {grain}'{zone}"
        text, _, ago = spans[0].text.partition(" ENDING ")
        step = "STEP" if text.startswith("CUMULATE") else "SLIDE"
        return f"{text} {step} '1 {grain}'" + (f" ENDING {ago}" if ago else "") + zone


@dataclass(frozen=True)
class _Layer:
    """All of a file: metrics and semantic models by name, and the model of each measure."""

    metrics: dict[str, yaml.Node]
    models: dict[str, _Model]
    measures: dict[str, _Model]

    def condition(self, node: yaml.Node, model: _Model | None) -> exp.Expr:
        """A filter, its references put in."""
        references: list[tuple[str, str]] = []

        def named(match: re.Match[str]) -> str:
            references.append((match[1].lower(), match[2]))
            return f"`reference {len(references) - 1}`"

        condition = expression_in(node, _REFERENCE.sub(named, text_of(node)))

        def put_in(part: exp.Expr) -> exp.Expr:
            match = re.fullmatch(r"reference (\d+)", part.name) if isinstance(part, exp.Column) else None
            return _inside(self._reference(*references[int(match[1])], model, place(node))) if match else part

        wrapped = exp.Paren(this=condition).transform(put_in, copy=False)
        inner: exp.Expr = wrapped.this
        return inner

    def _reference(self, kind: str, name: str, model: _Model | None, at: int) -> exp.Expr:
        if kind == "metric":
            raise Refused("HDL-143", "a filter on another metric", "HAVING filters by aggregates", at)
        if name == "metric_time":
            hint = "read the answers of the windows that you want"
            raise Refused("HDL-145", "a filter on the time of the metric", hint, at)
        if model is None:
            raise Refused("HDL-142", f"it is not known of which model {shown_text(name)} is", _JOINED, at)
        entity, _, own = name.rpartition("__")
        return model.value(own if entity in model.entities or not entity else name, at)


# ------------------------------------------------------------------------------------------- documents
def is_metricflow(root: yaml.Node) -> bool:
    """Return whether a document has semantic models or metrics of dbt."""
    return bool(
        {"semantic_models", "semantic_model", "metrics", "metric", "saved_queries", "saved_query"}
        & members(root).keys()
    )


def metric_queries(roots: Sequence[yaml.Node], report: Reporter) -> Iterator[Definition]:
    """A query for each metric and each saved query of some documents, which together are a project."""
    layer = _layer(roots, report)
    if layer.metrics:
        first = min(place(node) for node in layer.metrics.values())
        hint = "add GROUP BY with the dimensions that people ask for"
        report.add(
            Refused(DIFFERS, "metrics are grouped when they are read, queries when they are registered", hint, first),
            "",
            "warning",
        )
    for name, node in layer.metrics.items():
        if (definition := _definition(layer, name, node, [(name, node)], [], report)) is not None:
            yield definition
    for root in roots:
        for node in [*_all(root, "saved_queries"), *_all(root, "saved_query")]:
            parameters = path_of(node, "query_params")
            metrics = [(text_of(metric), metric) for metric in elements(path_of(parameters, "metrics"))]
            if path_of(parameters, "where") is not None:
                hint = "write it into the query"
                at = place(path_of(parameters, "where") or node)
                report.add(Refused(LEFT_OUT, "the where of a saved query is left out", hint, at), "", "warning")
            keys = elements(path_of(parameters, "group_by"))
            definition = _definition(layer, text_of(path_of(node, "name"), "saved"), node, metrics, keys, report)
            if definition is not None:
                yield definition


def _definition(
    layer: _Layer,
    name: str,
    node: yaml.Node,
    metrics: Sequence[tuple[str, yaml.Node]],
    group_by: Sequence[yaml.Node],
    report: Reporter,
) -> Definition | None:
    """A query of some metrics; None if there is none, which is reported."""
    named = valid_name(name)
    query = _Query(layer)
    try:
        if not metrics:
            raise Refused("HDL-146", "it names no metrics", "", place(node))
        items = [(metric, query.metric(metric, _Input(), place(at))) for metric, at in metrics]
        keys = [key for each in group_by if (key := _key(layer, query, each)) is not None]
        relation = query.relation(items, keys)
    except Refused as refused:
        report.add(refused, named, "error")
        return None
    if query.is_sparse:
        message = "join_to_timespine: a window without events has no row"
        report.add(Refused(DIFFERS, message, "fill them in when you read", place(node)), named, "warning")
    return Definition(named, "", place(node), words_near(node), relation)


def _key(layer: _Layer, query: _Query, node: yaml.Node) -> tuple[str, exp.Expr] | None:
    """A group column of a saved query; None: the time, which every answer has."""
    match = re.match(r"\s*(TimeDimension|Dimension|Entity)\s*\(\s*['\"]([^'\"]*)['\"]", text_of(node), re.IGNORECASE)
    name = match[2] if match else text_of(node)
    if name == "metric_time" or name.startswith("metric_time__"):
        return None
    return name.rpartition("__")[2], layer.condition(node, query.model) if "{{" in text_of(node) else layer._reference(
        match[1].lower() if match else "dimension", name, query.model, place(node)
    )


def _layer(roots: Sequence[yaml.Node], report: Reporter) -> _Layer:
    metrics: dict[str, yaml.Node] = {}
    models: dict[str, _Model] = {}
    for root in roots:
        for node in [*_all(root, "semantic_models"), *_all(root, "semantic_model")]:
            model = _model(node)
            models[model.name] = model
        for node in elements(path_of(root, "models")):
            if path_of(node, "semantic_model") is not None or path_of(node, "metrics") is not None:
                hint = "measures and semantic_models are read"
                refused = Refused("HDL-146", "the specification of dbt 1.12: metrics within models", hint, place(node))
                report.add(refused, "", "error")
        for node in [*_all(root, "metrics"), *_all(root, "metric")]:
            metrics[text_of(path_of(node, "name"), "metric")] = node
    measures = {name: model for model in models.values() for name in model.measures}
    for model in models.values():
        for name, node in model.measures.items():
            if text_of(path_of(node, "create_metric")) == "true":
                metrics.setdefault(name, _proxy(name, node))
    return _Layer(metrics, models, measures)


def _proxy(name: str, measure: yaml.Node) -> yaml.Node:
    """A simple metric of a measure, as ``create_metric`` makes it."""
    text = "tag:yaml.org,2002:str"

    def scalar(value: str) -> yaml.ScalarNode:
        return yaml.ScalarNode(text, value, measure.start_mark, measure.end_mark)

    pairs = [(scalar("name"), scalar(name)), (scalar("measure"), scalar(name))]
    return yaml.MappingNode("tag:yaml.org,2002:map", pairs, measure.start_mark, measure.end_mark)


def _all(root: yaml.Node, key: str) -> list[yaml.Node]:
    node = path_of(root, key)
    return elements(node) if not isinstance(node, yaml.MappingNode) else [node]


def _model(node: yaml.Node) -> _Model:
    name = text_of(path_of(node, "name"), "model")
    table = text_of(path_of(node, "model"))
    match = _TABLE.search(table)
    table = match[1] if match else table.rpartition(".")[2] or name
    table = text_of(path_of(node, "node_relation", "alias"), table)
    listed = elements(path_of(node, "entities"))
    own = [each for each in listed if text_of(path_of(each, "type")).lower() != "foreign"]
    entities = {text_of(path_of(each, "name")) for each in own} | {text_of(path_of(node, "primary_entity"))}
    named = {text_of(path_of(each, "name")): each for each in [*listed, *elements(path_of(node, "dimensions"))]}
    measures = {text_of(path_of(each, "name")): each for each in elements(path_of(node, "measures"))}
    return _Model(name, node, table, frozenset(entities - {""}), named, measures)


def _grain(node: yaml.Node) -> str:
    return text_of(path_of(node, "time_granularity")).lower()


def _inside(node: exp.Expr) -> exp.Expr:
    simple = exp.Column | exp.Placeholder | exp.Anonymous | exp.Paren | exp.Literal
    return node if isinstance(node, simple) else exp.Paren(this=node)
