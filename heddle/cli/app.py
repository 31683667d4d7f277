"""The complete ``heddle`` command: the declaration of every command."""

from heddle.cli.root import MODULES, PANELS, app

_DECLARED = {
    "start": ("init", "streams", "preview", "test"),
    "plan": ("validate", "plan", "explain", "what-if", "rollback"),
    "layout": ("format",),
    "importing": ("import",),
    "differences": ("diff",),
    "run": ("run", "tick", "backfill", "repair", "compare", "calibrate"),
    "audit": ("audit",),
    "answers": ("read", "lookup"),
    "features": ("features",),
    "relations": ("sql", "views", "contract"),
    "tables": ("tables",),
    "serve": ("serve",),
    "sql_server": ("sql-server",),
    "warehouse": ("status", "maintain"),
    "alerts": ("alerts",),
    "queries": ("queries", "pause", "resume", "remove", "quarantine"),
    "upgrade": ("upgrade",),
    "landing": ("land", "copy"),
    "jars": ("jars",),
    "config": ("config", "schema"),
    "dag_files": ("airflow",),
    "experiments": ("experiments",),
}
"""The commands of each module. A module is imported when one of its commands is used."""

_GROUPS = {
    "Start": ("init", "streams", "validate", "preview", "test", "import", "format"),
    "Plan": ("plan", "explain", "diff", "what-if", "rollback"),
    "Run": ("run", "tick", "backfill", "repair", "audit", "land", "copy"),
    "Answers": ("read", "sql", "lookup", "views", "tables", "contract", "serve", "sql-server"),
    "Operate": ("status", "alerts", "queries", "pause", "resume", "remove", "quarantine", "maintain", "upgrade"),
    "Set up and measure": ("config", "schema", "jars", "airflow", "compare", "calibrate", "experiments"),
}
"""The commands in the order of ``heddle --help``."""

_MODULE_OF = {name: f"heddle.cli.{module}" for module, names in _DECLARED.items() for name in names}
MODULES |= {name: _MODULE_OF[name] for names in _GROUPS.values() for name in names}
PANELS |= {name: group for group, names in _GROUPS.items() for name in names}

if __name__ == "__main__":
    app()
