"""The environment of all pages: what a template prints is escaped and visible, whatever the template says."""

from __future__ import annotations

import re

import pytest
from jinja2 import TemplateNotFound, UndefinedError
from markupsafe import Markup

from heddle.pages.render import ENVIRONMENT, TEMPLATES, render, visible

HOSTILE = "<b>\"'&\u202e\x1b[31m\u200b\ud800\n"
SEEN = "&lt;b&gt;&#34;&#39;&amp;\\u202e\\x1b[31m\\u200b\\ud800"
SOURCES = sorted(TEMPLATES.glob("*.j2"))


@pytest.mark.parametrize(
    "template",
    [
        "{{ text }}",
        "{{ text|cut(99) }}",
        "{{ text ~ '' }}",
        "{{ [text]|join }}",
        "{{ text|replace('x', 'y') }}",
        "{% macro m(t) %}{{ t }}{% endmacro %}{{ m(text) }}",
        "{% macro m() %}{{ caller() }}{% endmacro %}{% call m() %}{{ text }}{% endcall %}",
        "{% set t %}{{ text }}{% endset %}{{ t }}",
    ],
)
def test_users_text_is_text_however_it_is_printed(template: str) -> None:
    shown = ENVIRONMENT.from_string(template).render(text=HOSTILE)
    assert shown.removesuffix("\\n").rstrip("\n") == SEEN


def test_markup_keeps_its_line_ends_and_nothing_else() -> None:
    assert visible(Markup("<p>\n\u202e</p>")) == Markup("<p>\n\\u202e</p>")
    assert isinstance(visible(Markup("<p>")), Markup) and not isinstance(visible("<p>"), Markup)


def test_a_name_that_is_not_given_is_an_error() -> None:
    with pytest.raises(UndefinedError):
        render("refused.html.j2", title="Refresh", facts=())
    with pytest.raises(UndefinedError):
        ENVIRONMENT.from_string("{{ given.nothing }}").render(given={})
    with pytest.raises(TemplateNotFound):
        render("../render.py")


UNSAFE = r"\|\s*(safe|escape|e|forceescape|tojson|xmlattr|urlize)\b|autoescape|Markup"


def test_no_template_turns_it_off() -> None:
    assert len(SOURCES) > 8
    for source in SOURCES:
        text = source.read_text(encoding="utf-8")
        assert not re.search(UNSAFE, text), source
        # an attribute without quotes ends where a blank is
        assert not re.search(r"\s[\w-]+=\{\{", text), source
        assert not re.search(r"<script|javascript:|\bon\w+=|\bsrc=|https?:|url\(", text), source


def test_every_template_compiles_and_the_style_is_the_file() -> None:
    for source in SOURCES:
        ENVIRONMENT.get_template(source.name)
    style = (TEMPLATES / "style.css").read_text(encoding="utf-8")
    assert ENVIRONMENT.get_template("style.css").render() == style.removesuffix("\n")
    problem = {"code": "c", "message": "m", "hint": ""}
    page = render("refused.html.j2", title="Refresh", facts=(), problem=problem, is_form=True)
    assert style.strip() in page and page.startswith("<!doctype html>") and page.endswith("</html>\n")
