"""The ``heddle`` command, whole: every command registers itself as its module is imported."""

from heddle.cli import answers, config, experiments, importing, plan, queries, relations, run, serve, tables, warehouse
from heddle.cli.root import app

_SHOWN = [
    module.__name__
    for module in (plan, importing, run, queries, answers, relations, tables, serve, warehouse, config, experiments)
]
"""The order of ``heddle --help``, whatever the order of the imports."""

app.registered_commands.sort(key=lambda command: _SHOWN.index(getattr(command.callback, "__module__", "")))

if __name__ == "__main__":
    app()
