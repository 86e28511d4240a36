"""Spark in a process that a test kills: it writes CSV files to a stream, by a query or by batches."""

import pathlib
import sys

from pyspark.sql import DataFrame, SparkSession
from spark_child import session

from headrace.spark import write_stream


def batches(spark: SparkSession, url: str, folder: str) -> None:
    """Replace the stream by the first file, twice, and append the second."""
    for file, mode in (("00", "overwrite"), ("00", "overwrite"), ("01", "append")):
        rows = spark.read.schema("file LONG, n LONG").csv(f"{folder}/in/{file}.csv")
        rows.write.format("headrace").option("url", url).option("stream", "out").mode(mode).save()


def main(url: str, folder: str, way: str) -> None:
    """way: sink, of Spark; foreach, write_stream(), whose second batch fails once written; batch."""
    spark = session(f"{folder}/warehouse", "local[2,4]")
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "700")
    if way == "batch":
        batches(spark, url, folder)
        return
    files = spark.readStream.schema("file LONG, n LONG").option("maxFilesPerTrigger", 2).csv(f"{folder}/in")
    writer = files.writeStream.trigger(availableNow=True).option("checkpointLocation", f"{folder}/checkpoint")
    failed = pathlib.Path(folder, "failed")

    def write(rows: DataFrame, batch_id: int) -> None:
        write_stream(rows, batch_id, url=url, stream="out", query_id="q")
        if batch_id == 1 and not failed.exists():
            failed.touch()
            raise RuntimeError("failed after it had written")

    if way == "sink":
        writer = writer.format("headrace").option("url", url).option("stream", "out")
    else:
        writer = writer.foreachBatch(write)
    query = writer.start()
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
