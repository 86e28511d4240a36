"""A streaming query in a process that a test kills: it writes a stream to Parquet in small batches."""

import os
import pathlib
import sys

import pyspark
from pyspark.sql import SparkSession

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.streaming.checkpointFileManagerClass": "org.apache.spark.sql.execution.streaming"
    ".checkpointing.FileSystemBasedCheckpointFileManager",
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.ui.showConsoleProgress": "false",
}


def home_without_zip(folder: pathlib.Path) -> pathlib.Path:
    """Make a SPARK_HOME without pyspark.zip: importing the installed PySpark takes half the time."""
    home = folder / "spark-home"
    if not home.exists():
        home.mkdir(parents=True)
        for path in pathlib.Path(pyspark.__file__).parent.iterdir():
            if path.name != "python":
                (home / path.name).symlink_to(path)
    return home


def session(warehouse: str, master: str = "local[2]") -> SparkSession:
    """Start a session with two cores, a fast start and fast checkpoints."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ["SPARK_HOME"] = str(home_without_zip(pathlib.Path(warehouse)))
    builder = SparkSession.builder.master(master).config("spark.sql.warehouse.dir", warehouse)
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def main(url: str, folder: str, per_batch: str) -> None:
    query = (
        session(f"{folder}/warehouse")
        .readStream.format("headrace")
        .option("url", url)
        .option("subscribe", "s")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", per_batch)
        .option("minPartitions", "3")
        .schema("_id STRING, n LONG")
        .load()
        .writeStream.format("parquet")
        .option("path", f"{folder}/out")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
