"""The complete ``heddle`` command: the declaration of every command."""

from heddle.cli.root import MODULES, app

_DECLARED = {
    "start": ("init", "streams", "preview", "test"),
    "plan": ("validate", "plan", "explain", "what-if", "rollback"),
    "differences": ("diff",),
    "run": ("run", "tick", "backfill", "repair", "compare", "calibrate"),
    "audit": ("audit",),
    "queries": ("quarantine", "pause", "resume", "remove", "queries"),
    "answers": ("read", "lookup"),
    "features": ("features",),
    "relations": ("sql", "views", "contract"),
    "tables": ("tables",),
    "serve": ("serve",),
    "sql_server": ("sql-server",),
    "warehouse": ("maintain", "status"),
    "alerts": ("alerts",),
    "upgrade": ("upgrade",),
    "layout": ("format",),
    "importing": ("import",),
    "landing": ("land", "copy"),
    "jars": ("jars",),
    "config": ("config", "schema"),
    "dag_files": ("airflow",),
    "experiments": ("experiments",),
}
"""The commands of each module, in the order of ``heddle --help``. A module is imported when one of its commands is
used.
"""

MODULES |= {name: f"heddle.cli.{module}" for module, names in _DECLARED.items() for name in names}

if __name__ == "__main__":
    app()
