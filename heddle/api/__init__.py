"""Answers over HTTP, as JSON and Arrow: the API of ``heddle serve``. It only reads.

:mod:`heddle.api.app` has the routes. What they return is read by :mod:`spark_jobs.results`.
"""
