"""Run a job of the headrace program on a Spark cluster.

spark-submit --master spark://host:7077 examples/job.py archive --stream orders --to /mnt/archive/orders
"""

import sys

from headrace.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
