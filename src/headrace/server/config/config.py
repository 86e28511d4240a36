"""The configuration: defaults, a file, the environment, the command line; later what CONFIG SET changes."""

from __future__ import annotations

import difflib
import glob
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from headrace.errors import CommandError, UsageError, to_text
from headrace.keyspace.glob import matching_names
from headrace.resp.inline import split_line
from headrace.server.config.config_types import BufferLimitsType, Numbers, SavePoints, UserLines, Value
from headrace.server.config.directive import Directive
from headrace.server.config.directives import (
    DIRECTIVES,
    DIRECTIVES_BY_NAME,
    IGNORED,
    NAMES_BY_ALIAS,
    UNSUPPORTED,
    canonical,
)
from headrace.server.config.environment import directives_in, misspelled_variables

COMMAND_LINE_ORIGIN = "the command line"  # where a directive stands
SHORT_OPTIONS = {"-p": "port"}  # as redis-cli has it
INCLUDE_DEPTH_MAX = 16  # depth of includes
OFF_VALUES: tuple[list[str], ...] = (
    [],
    [""],
    ["no"],
    ["0"],
)  # accepted values of an unsupported directive


class Config:
    """The value of every directive, where it was set, and warnings to show at the start."""

    def __init__(self) -> None:
        self.values: dict[str, Value] = {d.name: d.kind.parse([d.default]) for d in DIRECTIVES}
        self.file: str = ""
        self.origins: dict[str, str] = {}  # where a directive was set last; missing for a default
        self.warnings: list[str] = []
        self.overridden_values: dict[str, Value] = {}  # requested values that the server has overridden
        # For CONFIG REWRITE: directives that may be repeated, each with a function that returns its lines.
        self.repeated_line_functions: dict[str, Callable[[], list[list[str]]]] = {}
        self.names_being_set: frozenset[str] = (
            frozenset()
        )  # directives of the running CONFIG SET, changed or not
        self._ignored: set[str] = set()
        self._rejected: dict[
            str, str
        ] = {}  # errors that end the start unless a later line sets another value

    def number(self, name: str) -> int:
        """Return the value of a directive that is a number, a memory size or a permission."""
        value = self.values[name]
        assert isinstance(value, int)
        return value

    def numbers(self, name: str) -> tuple[float, ...]:
        """Return the value of a directive that is a list of numbers."""
        value = self.values[name]
        assert isinstance(value, Numbers)
        return value.numbers

    def flag(self, name: str) -> bool:
        """Return the value of a yes-or-no directive."""
        return bool(self.values[name])

    def text(self, name: str) -> str:
        """Return the value of a directive that is a text or a choice."""
        value = self.values[name]
        assert isinstance(value, str)
        return value

    def save_rules(self) -> tuple[tuple[int, int], ...]:
        """Return the rules of `save`: pairs of seconds and changes."""
        rules = self.values["save"]
        assert isinstance(rules, SavePoints)
        return rules.pairs

    def formatted_value(self, name: str) -> str:
        """Return the value as CONFIG GET shows it."""
        return DIRECTIVES_BY_NAME[name].kind.show(self.values[name])

    def override(self, name: str, value: Value) -> None:
        """Set the value that the server uses instead of the requested one.

        CONFIG GET shows this value; CONFIG REWRITE writes the requested one.
        """
        self.overridden_values.setdefault(name, self.values[name])
        self.values[name] = value

    def requested_value(self, name: str) -> Value:
        """Return the value as it was requested, also if the server uses another one."""
        return self.overridden_values.get(name, self.values[name])

    # CONFIG GET and CONFIG SET.

    def get(self, patterns: list[bytes]) -> list[tuple[bytes, bytes]]:
        """Return name and value of every directive, except `user`, that matches one of the glob patterns."""
        names = [name.encode() for name in (*self.values, *NAMES_BY_ALIAS) if name != "user"]
        return [
            (name, self.formatted_value(canonical(name.decode())).encode("utf-8", "surrogateescape"))
            for name in matching_names(patterns, names)
        ]

    def set(self, pairs: list[tuple[bytes, bytes]]) -> None:
        """Change all of the directives or none. Raises CommandError with CONFIG SET's text."""
        shown = [(to_text(name), to_text(value)) for name, value in pairs]
        for name, _ in shown:  # all names before any value
            found = DIRECTIVES_BY_NAME.get(canonical(name))
            if found is None:
                raise CommandError(f"ERR Unknown option or number of arguments for CONFIG SET - '{name}'")
            if not found.mutable:
                raise config_set_error(name, "can't set immutable config")
        changed: dict[str, Value] = {}
        for name, value in shown:
            directive = DIRECTIVES_BY_NAME[canonical(name)]
            try:
                words = self._with_before(directive, [value])
                changed[directive.name] = _parse_requested_value(directive, words)
            except ValueError as wrong:
                raise config_set_error(name, str(wrong)) from None
        self.values.update(changed)
        self.names_being_set = frozenset(changed)
        for name in changed:
            self.origins[name] = "CONFIG SET"
            self.overridden_values.pop(name, None)

    # redis.conf, the environment and the command line.

    def read_arguments(self, arguments: list[str], environment: Mapping[str, str] | None = None) -> None:
        """Read `[FILE] --directive value ... --directive=value ...`; FILE `-` is standard input.

        Environment variables override the file; the other arguments override both. Raises UsageError.
        """
        words = list(arguments)
        if words and not words[0].startswith("--"):
            file = words.pop(0)
            if file.startswith("-") and file != "-" and not Path(file).exists():
                raise UsageError(f"unknown option {file}; {_option_hint(file)}")
            self.read_file(file)
            self.file = "" if file == "-" else file
        if environment is not None:
            self.read_environment(environment)
        while words:
            name, equals, value = words.pop(0).partition("=")
            if not name.startswith("--") or len(name) == 2:
                raise UsageError(f"not a directive: '{name}'; directives begin with --, as in --port 7777")
            values = [value] if equals else []
            while words and not words[0].startswith("--"):
                values.append(words.pop(0))
            self._read_directive(COMMAND_LINE_ORIGIN, name[2:], values)
        for text in self._rejected.values():
            raise UsageError(text)

    def read_environment(self, environment: Mapping[str, str]) -> None:
        """Read variables such as HEADRACE_PORT. Raises UsageError."""
        for variable, name, value in directives_in(environment, [*DIRECTIVES_BY_NAME, *NAMES_BY_ALIAS]):
            self._read_directive(f"the environment, {variable}", name, [value])
        for variable, near in misspelled_variables(environment, [*DIRECTIVES_BY_NAME, *NAMES_BY_ALIAS]):
            self.warnings.append(f"the environment, {variable}: unknown directive; did you mean {near}?")

    def read_file(self, path: str, depth: int = 0) -> None:
        """Read a file like redis.conf: one directive a line, # for comments, `include`. Raises UsageError."""
        try:
            text = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        except OSError as wrong:
            raise UsageError(f"cannot read {path}: {wrong.strerror}") from None
        self.read_lines(path, text.split(b"\n"), depth)

    def read_lines(self, path: str, lines: list[bytes], depth: int = 0) -> None:
        """Read the lines of a file as read_file() does; `path` is for messages. Raises UsageError."""
        for number, line in enumerate(lines, 1):
            where = f"{path}, line {number}"
            if line.strip().startswith(b"#"):
                continue
            split = split_line(line)
            if split is None:
                raise UsageError(f"{where}: unbalanced quotes")
            words = [to_text(word) for word in split]
            if not words:
                continue
            if words[0].lower() == "include":
                self._include(where, words[1:], depth)
            else:
                self._read_directive(where, words[0], words[1:])

    def _include(self, where: str, files: list[str], depth: int) -> None:
        """Read the named files; for a pattern, all that match it in alphabetical order. Raises UsageError."""
        if depth == INCLUDE_DEPTH_MAX:
            raise UsageError(f"{where}: includes more than {INCLUDE_DEPTH_MAX} deep")
        if not files:
            raise UsageError(f"{where}: include: wrong number of arguments")
        for file in files:
            for found in sorted(glob.glob(file)) if glob.has_magic(file) else [file]:
                self.read_file(found, depth + 1)

    def _read_directive(self, where: str, name: str, words: list[str]) -> None:
        """Set one directive, found at the place that `where` describes. Raises UsageError."""
        name = canonical(name)
        directive = DIRECTIVES_BY_NAME.get(name)
        if directive is None:
            self._read_unknown_directive(where, name, words)
            return
        try:
            value = directive.kind.parse(self._with_before(directive, words))
        except ValueError as wrong:
            if not words:
                option = f"--{name}" if where == COMMAND_LINE_ORIGIN else name
                raise UsageError(f"{where}: {option} needs a value") from None
            in_url = any("://" in word and "@" in word for word in words)  # perhaps a password
            shown = "..." if directive.secret or in_url else " ".join(words)
            if any(word.startswith("#") for word in words):
                wrong.args = (f"{wrong} (a comment needs a line of its own)",)
            raise UsageError(f"{where}: {name} {shown}: {wrong}") from None
        self.origins[name] = where
        self._rejected.pop(name, None)
        if directive.only_value is not None and value != directive.only_value:
            text = f"{where}: {name} {' '.join(words)}: {directive.only_value_reason}"
            if directive.unsupported_is_fatal:
                self._rejected[name] = text
            else:
                self.warnings.append(text)
        elif isinstance(value, SavePoints) and value.pairs:  # each line adds to the earlier ones
            self.values[name] = SavePoints((*self.save_rules(), *value.pairs))
        elif isinstance(value, UserLines):
            before = self.values[name]
            assert isinstance(before, UserLines)
            self.values[name] = UserLines(before.lines + value.lines)
        else:
            self.values[name] = value

    def _with_before(self, directive: Directive, words: list[str]) -> list[str]:
        """Return the words to parse: buffer limits are set class by class, and other classes stay."""
        if isinstance(directive.kind, BufferLimitsType) and any(words):
            return [*self.formatted_value(directive.name).split(), *words]
        return words

    def _read_unknown_directive(self, where: str, name: str, words: list[str]) -> None:
        """Handle a directive that headrace does not have. Raises UsageError if Redis has none either."""
        if name in UNSUPPORTED:
            self._rejected.pop(name, None)
            if words not in OFF_VALUES:
                text = "not supported yet, and it would not be safe to ignore it"
                self._rejected[name] = f"{where}: {name}: {text}"
        elif name in IGNORED:
            if name not in self._ignored:  # warn once
                self._ignored.add(name)
                self.warnings.append(f"{where}: {name}: has no effect here")
        else:
            close = difflib.get_close_matches(name, DIRECTIVES_BY_NAME, 1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise UsageError(f"{where}: unknown directive '{name}'{hint}")


def _option_hint(option: str) -> str:
    """Return a hint for an option with one hyphen."""
    name = SHORT_OPTIONS.get(option, option.partition("=")[0].lstrip("-"))
    near = difflib.get_close_matches(name, DIRECTIVES_BY_NAME, 1)
    return f"did you mean --{near[0]}?" if near else "options begin with --, as in --port 7777"


def config_set_error(name: str, why: str) -> CommandError:
    """Return the error of a CONFIG SET that failed because of this directive."""
    return CommandError(f"ERR CONFIG SET failed (possibly related to argument '{name}') - {why}")


def _parse_requested_value(directive: Directive, words: list[str]) -> Value:
    """Return the value that CONFIG SET requests. Raises ValueError with the reason."""
    value = directive.kind.parse(words)
    if directive.only_value is not None and value != directive.only_value:
        raise ValueError(directive.only_value_reason)
    return value
