"""Orders out of a stream as tables that Spark keeps up to date: a declarative pipeline.

spark-pipelines run --spec examples/declarative/spark-pipeline.yml

`orders` grows by what has come since the last run; `sales` is made anew out of it. For a second run Spark
needs a catalog that lasts, such as Hive's or Unity: without one it forgets its tables, and finds their files
in the way.
"""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

spark = SparkSession.active()


@dp.table
def orders() -> DataFrame:
    """Every order, once."""
    return (
        spark.readStream.format("headrace")
        .option("url", spark.conf.get("headrace.url") or "")
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .schema("_id STRING, _timestamp TIMESTAMP, item STRING, count INT")
        .load()
    )


@dp.materialized_view
def sales() -> DataFrame:
    """How much of each item was ordered."""
    return spark.read.table("orders").groupBy("item").agg(F.sum("count").alias("count"))
