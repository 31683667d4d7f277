"""The one Jinja2 environment of all pages.

Names, owners, filters and messages are users' text. Whatever a template prints is freed of invisible and
direction-turning characters (``finalize``) and escaped (``autoescape``), so a template cannot forget it. A name that a
template misspells is an error (``StrictUndefined``), never a gap in the page.
"""

from __future__ import annotations

from contextvars import ContextVar
from pathlib import Path
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from heddle.pages import formats
from optimizer.errors.diagnostics import printable

TEMPLATES = Path(__file__).parent / "templates"

CAN_REFRESH: ContextVar[bool] = ContextVar("CAN_REFRESH", default=True)
"""Whether the app of the request can refresh the plan: else its menu has no such page."""


def visible(value: object) -> str:
    """Text that a template may print of a value: no character that hides, or turns the direction of, its neighbours.

    Markup that a macro made keeps its line ends, nothing else: filters such as ``replace`` make markup of users' text.
    """
    if isinstance(value, Markup):
        return Markup("\n".join(printable(line) for line in str(value).split("\n")))
    return printable(str(value))


def _address(text: str) -> str:
    """A text as one value in the query of an address."""
    return quote(text, safe="")


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        finalize=visible,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters |= {
        "address": _address,
        "counted": formats.count,
        "cut": formats.cut,
        "duration": formats.duration,
        "figure": formats.figure,
        "instant": formats.instant,
        "moment": formats.moment,
        "number": formats.number,
        "seconds": formats.seconds,
    }
    environment.globals |= {"interval": formats.interval, "can_refresh": CAN_REFRESH.get}
    return environment


ENVIRONMENT = _environment()


def render(template: str, **values: object) -> str:
    """A page from one of :data:`TEMPLATES`. Raises jinja2.UndefinedError for a name that ``values`` do not give."""
    return ENVIRONMENT.get_template(template).render(values) + "\n"
