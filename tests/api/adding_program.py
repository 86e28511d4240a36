"""A program with a database: threads that add until they are refused, and print what was acknowledged.

Arguments: the directory, and fsync. Lines: `added ID`, `acked ID`, `refused`.
"""

import os
import sys
import threading
import time

import headrace
from headrace.errors import HeadraceError


def say(*words: bytes) -> None:
    """Print one line, whole."""
    os.write(1, b" ".join(words) + b"\n")


def add(db: headrace.Database, many: bool) -> None:
    try:
        while True:
            entries = [{"f": "v"}] * 3
            ids = db.backend.add_many(b"s", entries) if many else [db.backend.add(b"s", b"*", {"f": "v"})]
            for entry in ids:
                say(b"added", entry)
    except HeadraceError:  # NotOnDisk, or refused before it was done
        say(b"refused")


def read(db: headrace.Database) -> None:
    words = [b"XREADGROUP", b"GROUP", b"g", b"c", b"COUNT", b"5", b"STREAMS", b"s", b">"]
    try:
        while True:
            found = db.backend.execute_blocking_read(words, 0.1)
            for entry, _ in found[0][1] if found else []:
                if db.execute("XACK", "s", "g", entry) == 1:
                    say(b"acked", entry)
    except HeadraceError:
        pass


def sync(db: headrace.Database) -> None:
    """WAITAOF makes the database sync in the background with fsync="no", too."""
    while True:
        db.execute("WAITAOF", 1, 0, 50)


def main() -> None:
    db = headrace.open(sys.argv[1], fsync=sys.argv[2])
    db.execute("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    work = [(add, db, False)] * 3 + [(add, db, True), (read, db), (sync, db)]
    for function, *arguments in work:
        threading.Thread(target=function, args=arguments, daemon=True).start()
    time.sleep(1000)


if __name__ == "__main__":
    main()
