"""The process that Spark forks its Python workers from: what their tasks import is imported once, here, not in each."""

from pyspark.daemon import manager

pass

if __name__ == "__main__":
    manager()
