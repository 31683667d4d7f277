"""Heddle's HTML pages: values in, one self-contained page out that loads nothing and runs nothing.

A page is a template (``templates/*.html.j2``) and a module that prepares its values. Only :mod:`heddle.pages.render`
knows Jinja2; :mod:`heddle.pages.mermaid` and :mod:`heddle.pages.formats` do without.
"""
