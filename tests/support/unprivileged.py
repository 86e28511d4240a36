"""Work in a process that permissions apply to, also if the tests run as root."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

NOBODY = 65534


def open_to_all(directory: Path) -> None:
    """Let every user go through the directories that lead to a test's own, and write to that one."""
    root = Path(tempfile.gettempdir())
    directory.chmod(0o777)
    for parent in directory.parents:
        if parent != root and parent.is_relative_to(root):
            parent.chmod(0o755)


def in_unprivileged_child(work: Callable[[], str]) -> str:
    """Return what `work` returns in a process that permissions apply to."""
    end, begin = os.pipe()
    child = os.fork()
    if child == 0:
        answer = "it failed"
        try:
            if os.getuid() == 0:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            answer = work()
        except BaseException as error:
            answer = repr(error)
        finally:
            os.write(begin, answer.encode())
            os._exit(0)
    os.close(begin)
    with os.fdopen(end, "rb") as reader:
        answer = reader.read().decode()
    os.waitpid(child, 0)
    return answer
