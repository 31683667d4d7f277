"""Engines that run the tasks of a run: Spark, Spark Connect, or processes of this machine."""
