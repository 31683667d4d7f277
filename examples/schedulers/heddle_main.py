"""The command line as a file for spark-submit."""

from heddle.cli.app import app

app()
