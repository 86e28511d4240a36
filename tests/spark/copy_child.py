"""A query in a process that a test kills: it copies streams on one server, exactly once."""

import sys

from spark_child import session


def main(url: str, folder: str, per_batch: str) -> None:
    spark = session(f"{folder}/warehouse", "local[2,8]")
    rows = spark.readStream.format("headrace").option("url", url).option("subscribe", "a,b,c")
    rows = rows.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", per_batch)
    copies = rows.load().selectExpr("concat('copy of ', stream) AS _stream", "fields AS _fields")
    writer = copies.writeStream.format("headrace").option("url", url).trigger(availableNow=True)
    writer.option("checkpointLocation", f"{folder}/checkpoint").start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
