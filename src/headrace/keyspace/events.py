"""Keyspace notifications: events of keys, published to subscribers.

    SET k v in database 0   ->  channel __keyspace@0__:k     message set      (with K)
                                channel __keyevent@0__:set   message k        (with E)

The settings select the event classes, one bit for each letter, 0 for none: a disabled notification costs a
command one comparison. `publish` is passed in: this module does not know the subscribers.
"""

from __future__ import annotations

from collections.abc import Callable

import cython

from headrace.keyspace.settings import Settings
from headrace.visibility import Public

# The letters of notify-keyspace-events and their bits; A stands for the classes of ALL.
CLASS_BITS = {letter: 1 << bit for bit, letter in enumerate("KEg$lshzxetdnocamSTIV")}
ALL_CLASS_LETTERS = "g$lshzxetd"

KEYSPACE_BIT = cython.declare(cython.int, CLASS_BITS["K"])
KEYEVENT_BIT = cython.declare(cython.int, CLASS_BITS["E"])


def parse_classes(text: str) -> int:
    """Return the bits of a text of class letters. Raises ValueError if a letter is unknown."""
    class_bits = 0
    for letter in text:
        if letter == "A":
            class_bits |= parse_classes(ALL_CLASS_LETTERS)
        elif letter in CLASS_BITS:
            class_bits |= CLASS_BITS[letter]
        else:
            raise ValueError("Invalid event class character. Use 'Ag$lshzxeKEtmdnocaSTIV'.")
    return class_bits


def format_classes(class_bits: int) -> str:
    """Return the letters as CONFIG GET shows them. As in Redis, A hides n, o, c and a."""
    whole = parse_classes(ALL_CLASS_LETTERS)
    letters_shown = "KEmSTIV" if class_bits & whole == whole else ALL_CLASS_LETTERS + "nocaKEmSTIV"
    letters = "".join(letter for letter in letters_shown if class_bits & CLASS_BITS[letter])
    return letters if letters_shown.startswith(ALL_CLASS_LETTERS) else "A" + letters


@cython.final
@cython.cclass
class KeyspaceNotifier:
    """Publishes the events of one keyspace."""

    settings: Settings
    publish: Public[Callable[[bytes, bytes], object] | None]  # (channel, message); None: no subscribers

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.publish = None

    @cython.ccall
    def notify(self, cls: str, event: bytes, key: bytes, database: cython.Py_ssize_t) -> cython.void:
        """Publish an event of a key, if its class (one letter) is enabled."""
        enabled: cython.int = self.settings.notify_keyspace_events
        bit: cython.int = CLASS_BITS[cls]
        if not enabled & bit or self.publish is None:
            return
        if enabled & KEYSPACE_BIT:
            self.publish(b"__keyspace@%d__:%s" % (database, key), event)
        if enabled & KEYEVENT_BIT:
            self.publish(b"__keyevent@%d__:%s" % (database, event), key)
