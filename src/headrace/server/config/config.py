"""The configuration: defaults, a file, the environment, the command line; later what CONFIG SET changes."""

from __future__ import annotations

import difflib
import glob
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from headrace.errors import CommandError, UsageError
from headrace.keyspace.glob import select
from headrace.resp.inline import split_line
from headrace.server.config.config_types import BufferLimits, Numbers, Rules, UserLines, Value
from headrace.server.config.directives import BY_NAME, DIRECTIVES, IGNORED, UNSUPPORTED, Directive
from headrace.server.config.environment import directives_in, similar_variables

INCLUDES_MAX = 16  # files that include files that include files
NOTHING: tuple[list[str], ...] = ([], [""], ["no"], ["0"])  # what a refused directive may say


class Config:
    """The value of every directive, and what is to be said about them at the start."""

    def __init__(self) -> None:
        self.values: dict[str, Value] = {d.name: d.kind.parse([d.default]) for d in DIRECTIVES}
        self.file: str = ""
        self.origins: dict[str, str] = {}  # where a directive was said last: not there, its default
        self.warnings: list[str] = []
        self.requested: dict[str, Value] = {}  # what was asked for, where the server does otherwise
        # Directives of which there are any number, each with what says its lines, for CONFIG REWRITE.
        self.repeated_lines: dict[str, Callable[[], list[list[str]]]] = {}
        self.being_set: frozenset[str] = frozenset()  # by the CONFIG SET going on, even with the value it had
        self._ignored: set[str] = set()
        self._rejected: dict[str, str] = {}  # what ends the start unless it is taken back, and why

    def number(self, name: str) -> int:
        """The value of a number, a memory size or a permission."""
        value = self.values[name]
        assert isinstance(value, int)
        return value

    def numbers(self, name: str) -> tuple[float, ...]:
        """The value of a list of numbers."""
        value = self.values[name]
        assert isinstance(value, Numbers)
        return value.numbers

    def flag(self, name: str) -> bool:
        """The value of a yes or no."""
        return bool(self.values[name])

    def text(self, name: str) -> str:
        """The value of a text or a choice."""
        value = self.values[name]
        assert isinstance(value, str)
        return value

    def save_rules(self) -> tuple[tuple[int, int], ...]:
        """The rules of `save`: after so many seconds, if there were so many changes."""
        rules = self.values["save"]
        assert isinstance(rules, Rules)
        return rules.pairs

    def formatted(self, name: str) -> str:
        """The value as CONFIG GET answers it."""
        return BY_NAME[name].kind.show(self.values[name])

    def override(self, name: str, value: Value) -> None:
        """What the server does in place of what it was asked for: shown, and not written to the file."""
        self.requested.setdefault(name, self.values[name])
        self.values[name] = value

    def requested_value(self, name: str) -> Value:
        """The value as it was asked for."""
        return self.requested.get(name, self.values[name])

    # CONFIG GET and CONFIG SET.

    def get(self, patterns: list[bytes]) -> list[tuple[bytes, bytes]]:
        """Name and value of every directive that one of the glob patterns matches, each once."""
        names = [name.encode() for name in self.values if name != "user"]
        return [
            (name, self.formatted(name.decode()).encode("utf-8", "surrogateescape"))
            for name in select(patterns, names)
        ]

    def set(self, pairs: list[tuple[bytes, bytes]]) -> None:
        """Change all of the directives or none; raises CommandError with CONFIG SET's text."""
        shown = [(_text(name), _text(value)) for name, value in pairs]
        for name, _ in shown:  # all names before any value
            found = BY_NAME.get(name.lower())
            if found is None:
                raise CommandError(f"ERR Unknown option or number of arguments for CONFIG SET - '{name}'")
            if not found.mutable:
                raise set_failed(name, "can't set immutable config")
        changed: dict[str, Value] = {}
        for name, value in shown:
            directive = BY_NAME[name.lower()]
            try:
                changed[directive.name] = _changed(directive, self._with_before(directive, [value]))
            except ValueError as wrong:
                raise set_failed(name, str(wrong)) from None
        self.values.update(changed)
        self.being_set = frozenset(changed)
        for name in changed:
            self.origins[name] = "CONFIG SET"
            self.requested.pop(name, None)

    # redis.conf, the environment and the command line.

    def read_arguments(self, arguments: list[str], environment: Mapping[str, str] | None = None) -> None:
        """`[FILE] --directive value ... --directive=value ...`; FILE may be - for what stands in the input.

        The environment's variables come between the file and the rest. UsageError.
        """
        words = list(arguments)
        if words and not words[0].startswith("--"):
            file = words.pop(0)
            self.read_file(file)
            self.file = "" if file == "-" else file
        if environment is not None:
            self.read_environment(environment)
        while words:
            name, equals, value = words.pop(0).partition("=")
            if not name.startswith("--") or len(name) == 2:
                raise UsageError(f"'{name}' is no directive: they begin with --, as in --port 7777")
            values = [value] if equals else []
            while words and not words[0].startswith("--"):
                values.append(words.pop(0))
            self._read("the command line", name[2:], values)
        for text in self._rejected.values():
            raise UsageError(text)

    def read_environment(self, environment: Mapping[str, str]) -> None:
        """HEADRACE_PORT and the like. UsageError."""
        for variable, name, value in directives_in(environment, BY_NAME):
            self._read(f"the environment, {variable}", name, [value])
        for variable, near in similar_variables(environment, BY_NAME):
            self.warnings.append(f"the environment, {variable}: names no directive; did you mean {near}?")

    def read_file(self, path: str, depth: int = 0) -> None:
        """A file like redis.conf: a directive a line, # before comments, `include` for more. UsageError."""
        try:
            text = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        except OSError as wrong:
            raise UsageError(f"cannot read {path}: {wrong.strerror}") from None
        self.read_lines(path, text.split(b"\n"), depth)

    def read_lines(self, path: str, lines: list[bytes], depth: int = 0) -> None:
        """The lines of that file. UsageError."""
        for number, line in enumerate(lines, 1):
            where = f"{path}, line {number}"
            if line.strip().startswith(b"#"):
                continue
            split = split_line(line)
            if split is None:
                raise UsageError(f"{where}: unbalanced quotes")
            words = [word.decode("utf-8", "surrogateescape") for word in split]
            if not words:
                continue
            if words[0].lower() == "include":
                self._include(where, words[1:], depth)
            else:
                self._read(where, words[0], words[1:])

    def _include(self, where: str, files: list[str], depth: int) -> None:
        """The named files; of a pattern all that match it, in the order of the alphabet, or none."""
        if depth == INCLUDES_MAX:
            raise UsageError(f"{where}: includes more than {INCLUDES_MAX} deep")
        if not files:
            raise UsageError(f"{where}: include: wrong number of arguments")
        for file in files:
            for found in sorted(glob.glob(file)) if glob.has_magic(file) else [file]:
                self.read_file(found, depth + 1)

    def _read(self, where: str, name: str, words: list[str]) -> None:
        """One directive, found at the place that `where` names."""
        name = name.lower()
        directive = BY_NAME.get(name)
        if directive is None:
            self._read_unknown(where, name, words)
            return
        try:
            value = directive.kind.parse(self._with_before(directive, words))
        except ValueError as wrong:
            shown = "..." if directive.secret else " ".join(words)
            raise UsageError(f"{where}: {name} {shown}: {wrong}") from None
        self.origins[name] = where
        self._rejected.pop(name, None)
        if directive.only is not None and value != directive.only:
            text = f"{where}: {name} {' '.join(words)}: {directive.why}"
            if directive.refused_at_start:
                self._rejected[name] = text
            else:
                self.warnings.append(text)
        elif isinstance(value, Rules) and value.pairs:  # each line adds to those before
            self.values[name] = Rules((*self.save_rules(), *value.pairs))
        elif isinstance(value, UserLines):
            before = self.values[name]
            assert isinstance(before, UserLines)
            self.values[name] = UserLines(before.lines + value.lines)
        else:
            self.values[name] = value

    def _with_before(self, directive: Directive, words: list[str]) -> list[str]:
        """The words to read: limits of buffers are said class by class, and the other classes stay."""
        if isinstance(directive.kind, BufferLimits) and any(words):
            return [*self.formatted(directive.name).split(), *words]
        return words

    def _read_unknown(self, where: str, name: str, words: list[str]) -> None:
        """A directive that is not ours: perhaps one of Redis's."""
        if name in UNSUPPORTED:
            self._rejected.pop(name, None)
            if words not in NOTHING:
                text = "not supported yet, and it would not be safe to ignore it"
                self._rejected[name] = f"{where}: {name}: {text}"
        elif name in IGNORED:
            if name not in self._ignored:  # once is enough
                self._ignored.add(name)
                self.warnings.append(f"{where}: {name}: has no effect here")
        else:
            close = difflib.get_close_matches(name, BY_NAME, 1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise UsageError(f"{where}: unknown directive '{name}'{hint}")


def set_failed(name: str, why: str) -> CommandError:
    """CONFIG SET could not change that directive, or another one that it named."""
    return CommandError(f"ERR CONFIG SET failed (possibly related to argument '{name}') - {why}")


def _text(word: bytes) -> str:
    return word.decode("utf-8", "surrogateescape")


def _changed(directive: Directive, words: list[str]) -> Value:
    """The value that CONFIG SET asks for; ValueError with the reason when it cannot be."""
    value = directive.kind.parse(words)
    if directive.only is not None and value != directive.only:
        raise ValueError(directive.why)
    return value
