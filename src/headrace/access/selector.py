"""A selector: rules for commands, keys and channels. A user has one, and more in parentheses.

    +name -name  +name|sub  +name|first-word  +@category -@category      commands
    ~glob  %R~glob  %W~glob  %RW~glob  allkeys resetkeys                 keys
    &glob  allchannels resetchannels                                     channels

A denial code is 0 if the request is allowed. Else it has the reason and the index of the denied argument:

    | reason: 32 bits | index in argv: 32 bits |        of several codes the greatest one is reported
"""

from __future__ import annotations

import cython

from headrace.access.command_catalogue import CommandCatalogue
from headrace.access.rule_errors import (
    FIRST_WORD_OF_SUBCOMMAND,
    PATTERN_AFTER_ALL_CHANNELS,
    PATTERN_AFTER_ALL_KEYS,
    SYNTAX_ERROR,
    UNKNOWN_COMMAND_OR_CATEGORY,
    InvalidRule,
    has_blanks,
)
from headrace.errors import CommandError
from headrace.keyspace.glob import Glob
from headrace.visibility import Public

# How a command uses a key, and what a pattern allows. Python modules read them, so they are no C numbers.
READ = 1
WRITE = 2
READ_WRITE = READ | WRITE

DENIED_COMMAND = cython.declare(cython.longlong, 1 << 32)
DENIED_KEY = cython.declare(cython.longlong, 2 << 32)
DENIED_CHANNEL = cython.declare(cython.longlong, 4 << 32)

KEY_RULE_PREFIXES = {READ: b"%R~", WRITE: b"%W~", READ_WRITE: b"~"}


@cython.final
@cython.cclass
class AccessRequest:
    """A request as access rules see it: its command, keys and channels. Positions are indices in argv."""

    name: bytes  # the command's full name, lower case
    argv: list[bytes]
    always_allowed: cython.bint  # allowed before authentication, and so for every user
    key_positions: Public[list[int]]  # positions
    key_uses: Public[list[int]]  # READ, WRITE, READ_WRITE or 0 for each key
    channel_positions: Public[list[int]]  # positions
    channels_are_patterns: Public[cython.bint]  # the channels are patterns: they must equal a rule's pattern

    def __init__(self, name: bytes, argv: list[bytes], always_allowed: cython.bint = False) -> None:
        self.name = name
        self.argv = argv
        self.always_allowed = always_allowed
        self.key_positions = []
        self.key_uses = []
        self.channel_positions = []
        self.channels_are_patterns = False


@cython.cfunc
def compile_pattern(glob: bytes) -> Glob:
    """Compile the pattern of a rule. Raises InvalidRule if it is not valid."""
    if has_blanks(glob):
        raise InvalidRule(SYNTAX_ERROR)
    try:
        return Glob(glob)
    except CommandError as wrong:
        raise InvalidRule(str(wrong).removeprefix("ERR ")) from None


@cython.final
@cython.cclass
class Selector:
    """The permissions of one selector; a new one allows nothing."""

    all_commands: cython.bint  # including commands added in later versions
    all_keys: cython.bint
    all_channels: cython.bint
    allowed_commands: set[bytes]  # full command names
    first_arguments_by_command: dict[bytes, dict[bytes, None]]  # first arguments allowed of denied commands
    begins_with_all: cython.bint  # the command rules begin with +@all, else with -@all
    command_rule_signs: dict[bytes, bytes]  # the command rules after that, in order: name to sign
    rules_by_command: dict[bytes, dict[bytes, None]]  # names in rules with a `|`, by the part before it
    key_globs: list[Glob]
    key_glob_indexes: dict[bytes, int]  # index of each pattern in key_globs
    glob_uses: list[int]  # what each glob allows: READ, WRITE or READ_WRITE
    channels: dict[bytes, Glob]

    def __init__(self) -> None:
        self.all_keys = False
        self.all_channels = False
        self.key_globs = []
        self.key_glob_indexes = {}
        self.glob_uses = []
        self.channels = {}
        self._reset_commands(False, set())

    @cython.cfunc
    def _reset_commands(self, from_all: cython.bint, allowed: set[bytes]) -> cython.void:
        self.all_commands = from_all
        self.begins_with_all = from_all
        self.allowed_commands = allowed
        self.first_arguments_by_command = {}
        self.command_rule_signs = {}
        self.rules_by_command = {}

    def copy(self) -> Selector:
        """Return an independent copy."""
        made = Selector()
        made._reset_commands(self.begins_with_all, set(self.allowed_commands))
        made.all_commands = self.all_commands
        made.first_arguments_by_command = {
            name: dict(words) for name, words in self.first_arguments_by_command.items()
        }
        made.command_rule_signs = dict(self.command_rule_signs)
        made.rules_by_command = {name: dict(parts) for name, parts in self.rules_by_command.items()}
        made.all_keys = self.all_keys
        made.key_globs = list(self.key_globs)
        made.key_glob_indexes = dict(self.key_glob_indexes)
        made.glob_uses = list(self.glob_uses)
        made.all_channels = self.all_channels
        made.channels = dict(self.channels)
        return made

    # Rules.

    def apply(self, rule: bytes, catalogue: CommandCatalogue) -> None:
        """Apply one rule. Raises InvalidRule if it is not valid."""
        lower = rule.lower()
        if lower in (b"allkeys", b"~*"):
            self._reset_keys(True)
        elif lower == b"resetkeys":
            self._reset_keys(False)
        elif lower in (b"allchannels", b"&*"):
            self.all_channels, self.channels = True, {}
        elif lower == b"resetchannels":
            self.all_channels, self.channels = False, {}
        elif lower in (b"allcommands", b"+@all"):
            self._reset_commands(True, set(catalogue.members_by_name))
        elif lower in (b"nocommands", b"-@all"):
            self._reset_commands(False, set())
        elif rule[:1] in (b"~", b"%"):
            self._add_key(rule)
        elif rule[:1] == b"&":
            self._add_channel(rule[1:])
        elif rule[:1] in (b"+", b"-"):
            self._change_commands(lower[1:], lower[:1] == b"+", catalogue)
        else:
            raise InvalidRule(SYNTAX_ERROR)

    def _reset_keys(self, all_keys: bool) -> None:
        """Remove all key patterns; then allow all keys, or none."""
        self.all_keys, self.key_globs, self.key_glob_indexes, self.glob_uses = all_keys, [], {}, []

    def _add_key(self, rule: bytes) -> None:
        """Add a key pattern: ~glob, or % with letters before the ~. Raises InvalidRule."""
        if self.all_keys:
            raise InvalidRule(PATTERN_AFTER_ALL_KEYS)
        letters, _, glob = rule.partition(b"~")
        use: cython.int = READ_WRITE if not letters else 0
        for letter in letters[1:].upper():
            flag: cython.int = READ if letter == ord("R") else WRITE if letter == ord("W") else 0
            if not flag or use & flag:
                raise InvalidRule(SYNTAX_ERROR)
            use |= flag
        if not use:  # without a ~ the glob is empty
            raise InvalidRule(SYNTAX_ERROR)
        prepared = compile_pattern(glob)
        if glob in self.key_glob_indexes:
            self.glob_uses[self.key_glob_indexes[glob]] |= use
        else:
            self.key_glob_indexes[glob] = len(self.key_globs)
            self.key_globs.append(prepared)
            self.glob_uses.append(use)

    def _add_channel(self, glob: bytes) -> None:
        if self.all_channels:
            raise InvalidRule(PATTERN_AFTER_ALL_CHANNELS)
        self.channels.setdefault(glob, compile_pattern(glob))

    def _change_commands(self, name: bytes, on: bool, catalogue: CommandCatalogue) -> None:
        """Allow or deny a command, a category or a command with one first argument.

        Args:
            name: in lower case.

        Raises:
            InvalidRule: if there is no such command or category.
        """
        if name[:1] == b"@":
            if name[1:] not in catalogue.members_by_category:
                raise InvalidRule(UNKNOWN_COMMAND_OR_CATEGORY)
            self._set_allowed(catalogue.members_by_category[name[1:]], on)
        elif name in catalogue.members_by_name:
            self._set_allowed(catalogue.members_by_name[name], on)
        elif name not in catalogue.absent_commands:
            self._allow_first_word(name, on, catalogue)
        self._record_rule(name, on)

    def _set_allowed(self, names: list[bytes], on: bool) -> None:
        if on:
            self.allowed_commands.update(names)
        else:
            self.allowed_commands.difference_update(names)
            self.all_commands = False
        for name in names:
            self.first_arguments_by_command.pop(name, None)

    def _allow_first_word(self, name: bytes, on: bool, catalogue: CommandCatalogue) -> None:
        """Allow command|argument of a command without subcommands. Raises InvalidRule for any other rule."""
        command, bar, word = name.rpartition(b"|")
        if (
            not on
            or not bar
            or (command not in catalogue.members_by_name and command not in catalogue.absent_commands)
        ):
            raise InvalidRule(UNKNOWN_COMMAND_OR_CATEGORY)
        if b"|" in command:
            raise InvalidRule(FIRST_WORD_OF_SUBCOMMAND)
        if not word:
            raise InvalidRule(SYNTAX_ERROR)
        if command in catalogue.container_commands:
            raise InvalidRule(UNKNOWN_COMMAND_OR_CATEGORY)
        if command in catalogue.members_by_name:
            self.first_arguments_by_command.setdefault(command, {})[word] = None

    def _record_rule(self, name: bytes, on: bool) -> None:
        """Store a rule; remove earlier ones for the same name, and for its subcommands or first arguments."""
        for part in self.rules_by_command.pop(name, ()):
            self.command_rule_signs.pop(part, None)
        self.command_rule_signs.pop(name, None)
        self.command_rule_signs[name] = b"+" if on else b"-"
        command, bar, _ = name.partition(b"|")
        if bar:
            self.rules_by_command.setdefault(command, {})[name] = None

    # Text.

    def keys_text(self) -> bytes:
        """Return the rules for keys as text; empty if no key is allowed."""
        if self.all_keys:
            return b"~*"
        return b" ".join(
            KEY_RULE_PREFIXES[use] + glob
            for use, glob in zip(self.glob_uses, self.key_glob_indexes, strict=True)
        )

    def channels_text(self) -> bytes:
        """Return the rules for channels as text; empty if no channel is allowed."""
        return b"&*" if self.all_channels else b" ".join(b"&" + glob for glob in self.channels)

    def commands_text(self) -> bytes:
        """Return the rules for commands as text, beginning with +@all or -@all."""
        rules = [sign + name for name, sign in self.command_rule_signs.items()]
        return b" ".join([b"+@all" if self.begins_with_all else b"-@all", *rules])

    def text(self) -> bytes:
        """Return all rules: applied to a new selector they make an equal one."""
        before = b"" if self.all_channels else b"resetchannels"
        parts = (self.keys_text(), before, self.channels_text(), self.commands_text())
        return b" ".join(part for part in parts if part)

    # Requests.

    @cython.ccall
    def denial_code(self, request: AccessRequest) -> cython.longlong:
        """Return 0 if the request is allowed, else its denial code: see the top of this file."""
        if not self.all_commands and not request.always_allowed and not self._allows(request):
            return DENIED_COMMAND
        i: cython.Py_ssize_t
        use: cython.int
        if not self.all_keys:
            for i in range(len(request.key_positions)):
                use = request.key_uses[i]
                if not self.allows_key(request.argv[request.key_positions[i]], use):
                    place: cython.longlong = request.key_positions[i]
                    return DENIED_KEY | place
        if not self.all_channels:
            for i in range(len(request.channel_positions)):
                if not self.allows_channel(
                    request.argv[request.channel_positions[i]], request.channels_are_patterns
                ):
                    place = request.channel_positions[i]
                    return DENIED_CHANNEL | place
        return 0

    @cython.cfunc
    def _allows(self, request: AccessRequest) -> cython.bint:
        if request.name in self.allowed_commands:
            return True
        words = self.first_arguments_by_command.get(request.name)
        return words is not None and len(request.argv) > 1 and request.argv[1].lower() in words

    @cython.ccall
    def allows_key(self, key: bytes, use: cython.int) -> cython.bint:
        """Return whether the use (READ, WRITE, READ_WRITE) of the key is allowed; 0: whether any use is."""
        if self.all_keys:
            return True
        i: cython.Py_ssize_t
        allowed_use: cython.int
        glob: Glob
        for i in range(len(self.key_globs)):
            allowed_use = self.glob_uses[i]
            if allowed_use & use == use:
                glob = self.key_globs[i]
                if glob.matches(key):
                    return True
        return False

    @cython.ccall
    def allows_channel(self, channel: bytes, literal: cython.bint) -> cython.bint:
        """Return whether the channel is allowed; if `literal`, it is a pattern that must equal a rule's."""
        if self.all_channels:
            return True
        if literal:
            return channel in self.channels
        glob: Glob
        for glob in self.channels.values():
            if glob.matches(channel):
                break
        else:
            return False
        return True
