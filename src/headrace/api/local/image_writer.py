"""Write the data of a database in this process as a snapshot, while other threads use the database.

    this thread       lock ─ image ─ unlock ─ lock ─ some steps ─ unlock ─ pause ─ lock ─ some steps ─ ...
    encoder thread                                       └▶ compress, write ───────────────── sync

The image shows one moment (keyspace/keyspace_image.py). A slice of steps holds the engine's lock for
half a millisecond. A thread that waits for the lock gets it in the pause.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from headrace.api.local.engine_access import EngineAccess
from headrace.errors import DatabaseClosed, HeadraceError
from headrace.keyspace.keyspace_image import KeyspaceImage
from headrace.persistence.aof.pending_rewrite import PendingRewrite
from headrace.persistence.data_directory import File
from headrace.persistence.gradual_writer import gradual_writer
from headrace.persistence.rdb.encoder_thread import EncoderThread
from headrace.persistence.rdb.output import RdbOutput
from headrace.persistence.rdb.versions import by_name
from headrace.persistence.rdb.writer import rdb_steps
from headrace.persistence.snapshot_steps import run_steps

SLICE_NS = 500_000
PAUSE_S = 100e-6  # without it, this thread would take the lock again before another one wakes up
QUEUE_ROOM_WAIT_S = 0.05
STEPS_FINISHED = -1


def write_image(
    local_engine: EngineAccess,
    image: KeyspaceImage,
    file: File,
    is_cancelled: Callable[[], bool],
    rewrite: PendingRewrite | None = None,
) -> None:
    """Write the image to the file, sync it, and release the image. Call it without locks.

    rewrite: the rewrite of the log whose new base the file is; None: it is a snapshot.

    Raises:
        DatabaseClosed: if is_cancelled() returns True meanwhile.
        OSError: if the disk fails.
        HeadraceError: if the process cannot start a thread.
    """
    lock = local_engine.lock
    thread = None
    try:
        thread = _start_encoder(file)
        out = RdbOutput(thread.put, True, deferred=True)
        steps = rdb_steps(
            image,
            out,
            version=by_name("compatible"),
            aof_base=rewrite is not None,
            references=None if rewrite is None else rewrite.cold_references,
        )
        done = 0
        while done != STEPS_FINISHED:
            if is_cancelled():
                raise DatabaseClosed("the database was closed while a snapshot of it was written")
            if thread.wait_for_room(QUEUE_ROOM_WAIT_S):
                with lock:
                    done = run_steps(steps, SLICE_NS)
                time.sleep(PAUSE_S)
        out.write_trailer(True)
        thread.finish(file.sync)
        thread.wait()
        thread.size()  # raises what the thread has failed with
    except BaseException:
        if thread is not None:
            thread.cancel()
            thread.wait()
        raise
    finally:
        with lock:
            local_engine.engine.keyspace.release_image(image)


def _start_encoder(file: File) -> EncoderThread:
    try:
        return EncoderThread(gradual_writer(file))
    except RuntimeError as error:  # the interpreter is shutting down, or the process has too many threads
        raise HeadraceError(f"no thread for a snapshot: {error}") from None
