"""Lets PySpark find the format "headrace" by itself: it looks for DefaultSource in modules named pyspark_*.

An exception here would hide every other such module from Spark, so there is none: without what
headrace[spark] needs, the format is simply not there.
"""

import contextlib

with contextlib.suppress(ImportError):
    from headrace.spark import HeadraceSource as DefaultSource  # noqa: F401
