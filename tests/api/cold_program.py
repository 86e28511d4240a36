"""A program with a small limit of memory that adds until it is killed, and prints what was acknowledged.

Arguments: the directory. Lines: the sequence number of an acknowledged entry.
"""

import os
import sys

import headrace


def main() -> None:
    db = headrace.open(sys.argv[1], fsync="no", hot_memory="100kb")
    number = db.execute("XLEN", "s")
    while True:
        ids = db.backend.add_many(b"s", [{"n": number + n, "text": "x" * 60} for n in range(100)])
        number += len(ids)
        os.write(1, b"%d %d\n" % (number, db.info().cold_entries))
        if number % 2500 == 0:
            db.compact()


if __name__ == "__main__":
    main()
