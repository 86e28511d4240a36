"""A selector: which commands, on which keys, with which channels. A user has one, and more in parentheses.

    +name -name  +name|sub  +name|first-word  +@category -@category      commands
    ~glob  %R~glob  %W~glob  %RW~glob  allkeys resetkeys                 keys
    &glob  allchannels resetchannels                                     channels

A verdict is 0 when a request is fine, else the reason above and the word's place in the request below:

    | reason: 32 bits | index in argv: 32 bits |        the greatest of several is the one to tell
"""

from __future__ import annotations

import cython

from headrace.access.catalogue import Catalogue
from headrace.access.refusals import (
    CHANNELS_ARE_ALL,
    FIRST_WORD_OF_SUBCOMMAND,
    KEYS_ARE_ALL,
    SYNTAX,
    UNKNOWN,
    BadRule,
    has_blanks,
)
from headrace.keyspace.scan import matches

# What a command does with a key, and what a pattern lets it do. For Python modules, too: hence no C numbers.
READ = 1
WRITE = 2
BOTH = READ | WRITE

COMMAND = cython.declare(cython.longlong, 1 << 32)
KEY = cython.declare(cython.longlong, 2 << 32)
CHANNEL = cython.declare(cython.longlong, 4 << 32)

USES = {READ: b"%R~", WRITE: b"%W~", BOTH: b"~"}


@cython.final
@cython.cclass
class Wish:
    """What a request wants, as far as rules are concerned. Places are indices in argv."""

    __slots__ = ("argv", "at_once", "channels", "keys", "literal", "name", "uses")

    name: bytes  # the command's whole name, lower case
    argv: list[bytes]
    at_once: cython.bint  # a command that strangers may use, and so everybody
    keys: list[int]  # places
    uses: list[int]  # READ, WRITE, BOTH or 0 of each key
    channels: list[int]  # places
    literal: cython.bint  # the channels are patterns: a rule must say the same

    def __init__(self, name: bytes, argv: list[bytes], at_once: cython.bint = False) -> None:
        self.name = name
        self.argv = argv
        self.at_once = at_once
        self.keys = []
        self.uses = []
        self.channels = []
        self.literal = False


@cython.cfunc
def fits(glob: bytes, name: bytes) -> cython.bint:
    """Whether the glob describes the name; no * describes the empty name, in Redis."""
    return matches(glob, name) if name else not glob


@cython.final
@cython.cclass
class Selector:
    """Allows nothing, until rules are applied."""

    __slots__ = (
        "all_channels",
        "all_commands",
        "all_keys",
        "allowed",
        "channels",
        "first_words",
        "from_all",
        "globs",
        "rules",
        "uses",
    )

    all_commands: cython.bint  # those to come, too
    all_keys: cython.bint
    all_channels: cython.bint
    allowed: set[bytes]  # whole names
    first_words: dict[bytes, list[bytes]]  # of commands that are not allowed otherwise
    from_all: cython.bint  # the rules for commands begin with +@all, else with -@all
    rules: list[bytes]  # for commands, as given since
    globs: list[bytes]
    uses: list[int]  # what each glob lets do
    channels: list[bytes]

    def __init__(self) -> None:
        self.all_keys = False
        self.all_channels = False
        self.globs = []
        self.uses = []
        self.channels = []
        self._begin(False, set())

    @cython.cfunc
    def _begin(self, from_all: cython.bint, allowed: set[bytes]) -> cython.void:
        self.all_commands = from_all
        self.from_all = from_all
        self.allowed = allowed
        self.first_words = {}
        self.rules = []

    def copy(self) -> Selector:
        """Another that allows the same."""
        made = Selector()
        made._begin(self.from_all, set(self.allowed))
        made.all_commands = self.all_commands
        made.first_words = {name: list(words) for name, words in self.first_words.items()}
        made.rules = list(self.rules)
        made.all_keys = self.all_keys
        made.globs = list(self.globs)
        made.uses = list(self.uses)
        made.all_channels = self.all_channels
        made.channels = list(self.channels)
        return made

    # Rules.

    def apply(self, rule: bytes, catalogue: Catalogue) -> None:
        """One more rule; BadRule when it is none."""
        lower = rule.lower()
        if lower in (b"allkeys", b"~*"):
            self.all_keys, self.globs, self.uses = True, [], []
        elif lower == b"resetkeys":
            self.all_keys, self.globs, self.uses = False, [], []
        elif lower in (b"allchannels", b"&*"):
            self.all_channels, self.channels = True, []
        elif lower == b"resetchannels":
            self.all_channels, self.channels = False, []
        elif lower in (b"allcommands", b"+@all"):
            self._begin(True, set(catalogue.members))
        elif lower in (b"nocommands", b"-@all"):
            self._begin(False, set())
        elif rule[:1] in (b"~", b"%"):
            self._add_key(rule)
        elif rule[:1] == b"&":
            self._add_channel(rule[1:])
        elif rule[:1] in (b"+", b"-"):
            self._change_commands(lower[1:], lower[:1] == b"+", catalogue)
        else:
            raise BadRule(SYNTAX)

    def _add_key(self, rule: bytes) -> None:
        """~glob, or % with letters before it."""
        if self.all_keys:
            raise BadRule(KEYS_ARE_ALL)
        letters, _, glob = rule.partition(b"~")
        use: cython.int = BOTH if not letters else 0
        for letter in letters[1:].upper():
            flag: cython.int = READ if letter == ord("R") else WRITE if letter == ord("W") else 0
            if not flag or use & flag:
                raise BadRule(SYNTAX)
            use |= flag
        if not use or has_blanks(glob):  # a missing ~ is as an empty glob
            raise BadRule(SYNTAX)
        if glob in self.globs:
            self.uses[self.globs.index(glob)] |= use
        else:
            self.globs.append(glob)
            self.uses.append(use)

    def _add_channel(self, glob: bytes) -> None:
        if self.all_channels:
            raise BadRule(CHANNELS_ARE_ALL)
        if has_blanks(glob):
            raise BadRule(SYNTAX)
        if glob not in self.channels:
            self.channels.append(glob)

    def _change_commands(self, name: bytes, on: bool, catalogue: Catalogue) -> None:
        """Allow or deny a command, a category, or a command with one first word; the name is lower case."""
        if name[:1] == b"@":
            if name[1:] not in catalogue.chosen:
                raise BadRule(UNKNOWN)
            self._choose(catalogue.chosen[name[1:]], on)
        elif name in catalogue.members:
            self._choose(catalogue.members[name], on)
        else:
            self._allow_first_word(name, on, catalogue)
        self._note(name, on)

    def _choose(self, names: list[bytes], on: bool) -> None:
        if on:
            self.allowed.update(names)
        else:
            self.allowed.difference_update(names)
            self.all_commands = False
        for name in names:
            self.first_words.pop(name, None)

    def _allow_first_word(self, name: bytes, on: bool, catalogue: Catalogue) -> None:
        """name|word, where the command has no subcommand of that name."""
        command, bar, word = name.rpartition(b"|")
        if not on or not bar or command not in catalogue.members:
            raise BadRule(UNKNOWN)
        if b"|" in command:
            raise BadRule(FIRST_WORD_OF_SUBCOMMAND)
        if not word:
            raise BadRule(SYNTAX)
        if command in catalogue.containers:
            raise BadRule(UNKNOWN)
        words = self.first_words.setdefault(command, [])
        if word not in words:
            words.append(word)

    def _note(self, name: bytes, on: bool) -> None:
        """Keep the rule, and none that it makes void: the same, or one for a part of its command."""
        part = name + b"|"
        self.rules = [r for r in self.rules if r[1:] != name and not r[1:].startswith(part)]
        self.rules.append((b"+" if on else b"-") + name)

    # Text.

    def keys_text(self) -> bytes:
        """The rules for keys."""
        if self.all_keys:
            return b"~*"
        return b" ".join(USES[use] + glob for use, glob in zip(self.uses, self.globs, strict=True))

    def channels_text(self) -> bytes:
        """The rules for channels."""
        return b"&*" if self.all_channels else b" ".join(b"&" + glob for glob in self.channels)

    def commands_text(self) -> bytes:
        """The rules for commands."""
        return b" ".join([b"+@all" if self.from_all else b"-@all", *self.rules])

    def text(self) -> bytes:
        """All rules: applied to a new selector they make this one."""
        before = b"" if self.all_channels else b"resetchannels"
        parts = (self.keys_text(), before, self.channels_text(), self.commands_text())
        return b" ".join(part for part in parts if part)

    # Requests.

    @cython.ccall
    def verdict(self, wish: Wish) -> cython.longlong:
        """0 if the request is allowed, else why it is not."""
        if not self.all_commands and not wish.at_once and not self._allows(wish):
            return COMMAND
        i: cython.Py_ssize_t
        use: cython.int
        if not self.all_keys:
            for i in range(len(wish.keys)):
                use = wish.uses[i]
                if not self.opens(wish.argv[wish.keys[i]], use):
                    place: cython.longlong = wish.keys[i]
                    return KEY | place
        if not self.all_channels:
            for i in range(len(wish.channels)):
                if not self.hears(wish.argv[wish.channels[i]], wish.literal):
                    place = wish.channels[i]
                    return CHANNEL | place
        return 0

    @cython.cfunc
    def _allows(self, wish: Wish) -> cython.bint:
        if wish.name in self.allowed:
            return True
        words = self.first_words.get(wish.name)
        return words is not None and len(wish.argv) > 1 and wish.argv[1].lower() in words

    @cython.ccall
    def opens(self, key: bytes, use: cython.int) -> cython.bint:
        """Whether the key may be used so; for 0, whether it may be used at all."""
        if self.all_keys:
            return True
        i: cython.Py_ssize_t
        lets: cython.int
        for i in range(len(self.globs)):
            lets = self.uses[i]
            if lets & use == use and fits(self.globs[i], key):
                return True
        return False

    @cython.ccall
    def hears(self, channel: bytes, literal: cython.bint) -> cython.bint:
        """Whether the channel is allowed; literal when it is itself a pattern."""
        if self.all_channels:
            return True
        if literal:
            return channel in self.channels
        i: cython.Py_ssize_t = 0
        while i < len(self.channels) and not fits(self.channels[i], channel):
            i += 1
        return i < len(self.channels)
