"""The configuration: defaults, then redis.conf, then the command line; later what CONFIG SET changes."""

from __future__ import annotations

import difflib
from pathlib import Path

from headrace.errors import CommandError, UsageError
from headrace.keyspace.scan import matches
from headrace.resp.inline import split_line
from headrace.server.directives import BY_NAME, DIRECTIVES, NOT_APPLICABLE, REFUSED, Directive
from headrace.server.kinds import Numbers, Rules, Value

INCLUDES_MAX = 16  # files that include files that include files
NOTHING: tuple[list[str], ...] = ([], [""], ["no"], ["0"])  # what a refused directive may say


class Config:
    """The value of every directive, and what is to be said about them at the start."""

    def __init__(self) -> None:
        self.values: dict[str, Value] = {d.name: d.kind.parse([d.default]) for d in DIRECTIVES}
        self.file: str = ""
        self.warnings: list[str] = []

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

    def shown(self, name: str) -> str:
        """The value as CONFIG GET answers it."""
        return BY_NAME[name].kind.show(self.values[name])

    # CONFIG GET and CONFIG SET.

    def get(self, patterns: list[bytes]) -> list[tuple[bytes, bytes]]:
        """Name and value of every directive that one of the glob patterns matches, each once."""
        return [
            (name.encode(), self.shown(name).encode("utf-8", "surrogateescape"))
            for name in self.values
            if any(matches(pattern, name.encode(), True) for pattern in patterns)
        ]

    def set(self, pairs: list[tuple[bytes, bytes]]) -> None:
        """Change all of the directives or none; raises CommandError with CONFIG SET's text."""
        changed: dict[str, Value] = {}
        for name, value in pairs:
            shown = name.decode("utf-8", "surrogateescape")
            directive = BY_NAME.get(shown.lower())
            if directive is None:
                raise CommandError(f"ERR Unknown option or number of arguments for CONFIG SET - '{shown}'")
            try:
                changed[directive.name] = _changed(directive, value.decode("utf-8", "surrogateescape"))
            except ValueError as wrong:
                text = f"ERR CONFIG SET failed (possibly related to argument '{shown}') - {wrong}"
                raise CommandError(text) from None
        self.values.update(changed)

    # redis.conf and the command line.

    def read_arguments(self, arguments: list[str]) -> None:
        """`[FILE] --directive value ... --directive=value ...`; raises UsageError."""
        words = list(arguments)
        if words and not words[0].startswith("--"):
            self.file = words.pop(0)
            self.read_file(self.file)
        while words:
            name, equals, value = words.pop(0).partition("=")
            if not name.startswith("--") or len(name) == 2:
                raise UsageError(f"'{name}' is no directive: they begin with --, as in --port 7777")
            values = [value] if equals else []
            while words and not words[0].startswith("--"):
                values.append(words.pop(0))
            self._read("the command line", name[2:], values)

    def read_file(self, path: str, depth: int = 0) -> None:
        """A file like redis.conf: a directive a line, # before comments, `include` for more files."""
        try:
            lines = Path(path).read_bytes().split(b"\n")
        except OSError as wrong:
            raise UsageError(f"cannot read {path}: {wrong.strerror}") from None
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
            if words[0].lower() != "include":
                self._read(where, words[0], words[1:])
                continue
            if depth == INCLUDES_MAX:
                raise UsageError(f"{where}: includes more than {INCLUDES_MAX} deep")
            for file in words[1:]:
                self.read_file(file, depth + 1)

    def _read(self, where: str, name: str, words: list[str]) -> None:
        """One directive, found at the place that `where` names."""
        name = name.lower()
        directive = BY_NAME.get(name)
        if directive is None:
            self._read_foreign(where, name, words)
            return
        try:
            value = directive.kind.parse(words)
        except ValueError as wrong:
            raise UsageError(f"{where}: {name} {' '.join(words)}: {wrong}") from None
        if directive.only is not None and value != directive.only:
            text = f"{where}: {name} {' '.join(words)}: {directive.why}"
            if directive.refused_at_start:
                raise UsageError(text)
            self.warnings.append(text)
        elif isinstance(value, Rules) and value.pairs:  # each line adds to those before
            self.values[name] = Rules((*self.save_rules(), *value.pairs))
        else:
            self.values[name] = value

    def _read_foreign(self, where: str, name: str, words: list[str]) -> None:
        """A directive that is not ours: perhaps one of Redis's."""
        if name in REFUSED:
            if words not in NOTHING:
                raise UsageError(f"{where}: {name}: not supported yet, and it would not be safe to ignore it")
        elif name in NOT_APPLICABLE:
            self.warnings.append(f"{where}: {name}: has no effect here")
        else:
            close = difflib.get_close_matches(name, BY_NAME, 1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise UsageError(f"{where}: unknown directive '{name}'{hint}")


def _changed(directive: Directive, text: str) -> Value:
    """The value that CONFIG SET asks for; ValueError with the reason when it cannot be."""
    if not directive.mutable:
        raise ValueError("can't set immutable config")
    value = directive.kind.parse([text])
    if directive.only is not None and value != directive.only:
        raise ValueError(directive.why)
    return value
