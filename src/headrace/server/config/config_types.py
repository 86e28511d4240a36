"""The types of directives' values: parse them from arguments, format them as CONFIG GET does."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

from headrace.keyspace import events
from headrace.memory_size import parse_memory
from headrace.server.config.buffer_limits import BufferLimit, OutputBufferLimits


@dataclass(frozen=True)
class SavePoints:
    """When to save snapshots: pairs of seconds and changes."""

    pairs: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Numbers:
    """Several numbers."""

    numbers: tuple[float, ...]


@dataclass(frozen=True)
class UserLines:
    """Users, each as the arguments after `user`: name and rules."""

    lines: tuple[tuple[str, ...], ...] = ()


Value = int | bool | str | list[str] | OutputBufferLimits | SavePoints | Numbers | UserLines

U31_MAX = (1 << 31) - 1
I63_MAX = (1 << 63) - 1
PORT_MAX = 65535


class DirectiveType(Protocol):
    """A type of value. The text of a ValueError is shown to the operator."""

    @property
    def syntax(self) -> str:
        """The accepted values, described in a few words of Markdown."""

    def parse(self, words: list[str]) -> Value:
        """Return the value for the arguments of a line or of CONFIG SET. Raises ValueError."""

    def show(self, value: Value) -> str:
        """Return the value as CONFIG GET shows it."""


def bound_text(number: int) -> str:
    """Return a bound as text. A bound of 2^20 or more must be 2^n or 2^n-1, and is written so."""
    if number < 1 << 20:
        return str(number)
    bits = number.bit_length()
    return f"2^{bits - 1}" if number == 1 << (bits - 1) else f"2^{bits}-1"


def single_word(words: list[str]) -> str:
    """Return the only argument. Raises ValueError if there is not exactly one."""
    if len(words) != 1:
        raise ValueError("wrong number of arguments")
    return words[0]


@dataclass(frozen=True)
class Number:
    """An integer within bounds."""

    least: int
    most: int

    @property
    def syntax(self) -> str:
        """The bounds."""
        return f"number, {bound_text(self.least)} to {bound_text(self.most)}"

    def parse(self, words: list[str]) -> Value:
        """Parse digits, perhaps signed."""
        word = single_word(words)
        if not re.fullmatch(r"-?[0-9]{1,19}", word):
            raise ValueError("argument couldn't be parsed into an integer")
        return checked_number(int(word), self.least, self.most)

    def show(self, value: Value) -> str:
        """Return digits."""
        return str(value)


def checked_number(number: int, least: int, most: int) -> int:
    """Return the number if it is within the bounds. Raises ValueError."""
    if not least <= number <= most:
        raise ValueError(f"argument must be between {least} and {most} inclusive")
    return number


@dataclass(frozen=True)
class Memory:
    """A number of bytes: 1024, 1kb, 1k (1000), 512mb, 1gb."""

    least: int
    most: int

    @property
    def syntax(self) -> str:
        """The bounds."""
        return f"bytes, {bound_text(self.least)} to {bound_text(self.most)}"

    def parse(self, words: list[str]) -> Value:
        """Parse digits, perhaps with a unit."""
        return checked_number(parse_memory(single_word(words)), self.least, self.most)

    def show(self, value: Value) -> str:
        """Return the number of bytes."""
        return str(value)


@dataclass(frozen=True)
class BacklogSize(Memory):
    """The size of the replication backlog in bytes; less than SMALLEST becomes SMALLEST."""

    least: int = 1
    most: int = I63_MAX

    SMALLEST = 16 << 10

    def parse(self, words: list[str]) -> Value:
        """Parse digits, perhaps with a unit."""
        size = Memory.parse(self, words)
        assert isinstance(size, int)
        return max(size, self.SMALLEST)


@dataclass(frozen=True)
class PrimaryAddressType:
    """Host and port of a primary; empty for none."""

    syntax = "host and port"

    def parse(self, words: list[str]) -> Value:
        """Parse host and port, in one argument or two; `no one`, or no argument, for none."""
        words = [word for text in words for word in text.split()] or ["no", "one"]
        if len(words) != 2:
            raise ValueError("must be host and port, separated by a blank")
        host, port = words
        if (host.lower(), port.lower()) == ("no", "one"):
            return ""
        if not re.fullmatch(r"0|[1-9][0-9]{0,4}", port) or int(port) > PORT_MAX:
            raise ValueError("Invalid master port")
        return f"{host} {port}"

    def show(self, value: Value) -> str:
        """Return host and port, separated by a space; empty for none."""
        return str(value)


@dataclass(frozen=True)
class Flag:
    """yes or no."""

    syntax = "`yes`, `no`"

    def parse(self, words: list[str]) -> Value:
        """Parse yes or no, in upper or lower case."""
        word = single_word(words).lower()
        if word not in ("yes", "no"):
            raise ValueError("argument must be 'yes' or 'no'")
        return word == "yes"

    def show(self, value: Value) -> str:
        """Return yes or no."""
        return "yes" if value else "no"


@dataclass(frozen=True)
class Choice:
    """One of a few words."""

    words: tuple[str, ...]

    @property
    def syntax(self) -> str:
        """The words."""
        return ", ".join(f"`{word}`" for word in self.words)

    def parse(self, words: list[str]) -> Value:
        """Parse one of the words, in upper or lower case."""
        said = single_word(words).lower()
        for word in self.words:
            if word.lower() == said:
                return word
        raise ValueError(f"argument(s) must be one of the following: {', '.join(self.words)}")

    def show(self, value: Value) -> str:
        """Return the word."""
        return str(value)


@dataclass(frozen=True)
class NonRedisChoice(Choice):
    """A choice that lacks some words of Redis: these are rejected with the text `rejection_reason`."""

    redis_words: tuple[str, ...]
    rejection_reason: str

    def parse(self, words: list[str]) -> Value:
        """Parse one of the words, in upper or lower case."""
        if single_word(words).lower() in self.redis_words:
            raise ValueError(self.rejection_reason)
        return Choice.parse(self, words)


@dataclass(frozen=True)
class Text:
    """Any text: a path, a name."""

    syntax = "text"

    def parse(self, words: list[str]) -> Value:
        """Parse one argument, which may be empty."""
        return single_word(words)

    def show(self, value: Value) -> str:
        """Return the text as given."""
        return str(value)


@dataclass(frozen=True)
class FileName:
    """A file name within a directory that another directive names: not a path, and not empty."""

    syntax = "name of a file"

    directive: str
    noun: str

    def parse(self, words: list[str]) -> Value:
        """Parse one argument without slashes."""
        name = single_word(words)
        if not name:
            raise ValueError(f"{self.directive} can't be empty")
        if "/" in name:
            raise ValueError(f"{self.directive} can't be a path, just a {self.noun}")
        return name

    def show(self, value: Value) -> str:
        """Return the name as given."""
        return str(value)


@dataclass(frozen=True)
class SaveRulesType:
    """Pairs of seconds and changes; no arguments, or an empty one, for none."""

    syntax = "pairs of seconds and changes"

    def parse(self, words: list[str]) -> Value:
        """Parse two numbers for each rule."""
        words = [word for text in words for word in text.split()]
        if len(words) % 2 or not all(re.fullmatch(r"[0-9]{1,18}", word) for word in words):
            raise ValueError("Invalid save parameters")
        numbers = [int(word) for word in words]
        if not all(numbers[::2]):
            raise ValueError("Invalid save parameters")
        return SavePoints(tuple(zip(numbers[::2], numbers[1::2], strict=True)))

    def show(self, value: Value) -> str:
        """Return all numbers, separated by spaces."""
        assert isinstance(value, SavePoints)
        return " ".join(f"{seconds} {changes}" for seconds, changes in value.pairs)


@dataclass(frozen=True)
class Words:
    """The type of directives whose value is a list of words, such as `bind`."""

    syntax = "words"

    def parse(self, words: list[str]) -> Value:
        """Parse each word; one empty word means none."""
        return [word for text in words for word in text.split()]

    def show(self, value: Value) -> str:
        """Return the words, separated by spaces."""
        assert isinstance(value, list)
        return " ".join(value)


@dataclass(frozen=True)
class TlsVersions(Words):
    """TLS versions; empty for all secure ones. Older versions are not available."""

    syntax = "`TLSv1.2`, `TLSv1.3`"

    def parse(self, words: list[str]) -> Value:
        """Parse names in upper or lower case, in one argument or several."""
        names = [word for text in words for word in text.lower().split()]
        if old := [word for word in names if word in ("sslv3", "tlsv1", "tlsv1.1")]:
            raise ValueError(f"{old[0]} is insecure and not supported; the oldest version is TLSv1.2")
        if unknown := [word for word in names if word not in ("tlsv1.2", "tlsv1.3")]:
            raise ValueError(f"{unknown[0]} is not a TLS version; use TLSv1.2 or TLSv1.3")
        return [word.replace("tls", "TLS") for word in names]


@dataclass(frozen=True)
class EventClasses:
    """The letters of notify-keyspace-events, stored as bits."""

    syntax = "letters"

    def parse(self, words: list[str]) -> Value:
        """Parse letters in any order; empty means none."""
        return events.parse_classes(single_word(words))

    def show(self, value: Value) -> str:
        """Return the letters in Redis's order."""
        assert isinstance(value, int)
        return events.format_classes(value)


@dataclass(frozen=True)
class Percentiles:
    """Numbers from 0 to 100."""

    syntax = "numbers, 0 to 100"

    def parse(self, words: list[str]) -> Value:
        """Parse numbers, perhaps with a fraction; empty means none."""
        words = [word for text in words for word in text.split()]
        try:
            numbers = tuple(float(word) for word in words)
        except ValueError:
            raise ValueError("Invalid latency-tracking-info-percentiles parameters") from None
        if not all(0 <= number <= 100 for number in numbers):
            raise ValueError("latency-tracking-info-percentiles parameters should sit between [0.0,100.0]")
        return Numbers(numbers)

    def show(self, value: Value) -> str:
        """Return the numbers, separated by spaces."""
        assert isinstance(value, Numbers)
        return " ".join(f"{number:g}" for number in value.numbers)


@dataclass(frozen=True)
class Octal:
    """File permissions, as chmod accepts them."""

    syntax = "octal number"

    def parse(self, words: list[str]) -> Value:
        """Parse octal digits up to 777."""
        word = single_word(words)
        if not re.fullmatch(r"[0-7]{1,4}", word) or int(word, 8) > 0o777:
            raise ValueError("argument must be an octal number up to 777")
        return int(word, 8)

    def show(self, value: Value) -> str:
        """Return octal digits."""
        return f"{value:o}"


@dataclass(frozen=True)
class Port:
    """A TCP port; 0 disables it, `free` lets the system choose one."""

    syntax = "number, 0 to 65535, or `free`"

    def parse(self, words: list[str]) -> Value:
        """Parse digits, or the word free."""
        if words == ["free"]:
            return "free"
        return Number(0, 65535).parse(words)

    def show(self, value: Value) -> str:
        """Return digits, or the word free before the port is open."""
        return str(value)


@dataclass(frozen=True)
class UserLineType:
    """A user: its name and rules. Each line adds one. It is never shown, because it contains passwords."""

    syntax = "name and rules"

    def parse(self, words: list[str]) -> Value:
        """Parse the name and rules of a user, as several arguments or as one text with spaces.

        One empty argument means no users. The rules are checked later, when users are created.
        """
        if words == [""]:
            return UserLines()
        if len(words) == 1:  # a variable of the environment
            words = words[0].split()
        if not words or not words[0]:
            raise ValueError("a user needs a name")
        return UserLines((tuple(words),))

    def show(self, value: Value) -> str:
        """Return nothing: ACL LIST shows users."""
        return ""


@dataclass(frozen=True)
class BufferLimitsType:
    """Limits on unread replies, for each class of clients."""

    syntax = "class, hard limit, soft limit, seconds"

    def parse(self, words: list[str]) -> Value:
        """Parse groups of class, hard limit, soft limit and seconds.

        A class that is not named has no limits.
        """
        words = [word for text in words for word in text.split()]
        if not words or len(words) % 4:
            raise ValueError("Wrong number of arguments in buffer limit configuration.")
        limits = {name: BufferLimit(0, 0, 0) for name in ("normal", "slave", "pubsub")}
        for at in range(0, len(words), 4):
            name = {"replica": "slave"}.get(words[at].lower(), words[at].lower())
            if name not in limits:
                raise ValueError("Invalid client class specified in buffer limit configuration.")
            try:
                hard, soft = (
                    checked_number(parse_memory(word), 0, I63_MAX) for word in words[at + 1 : at + 3]
                )
                seconds = checked_number(int(words[at + 3]), 0, U31_MAX)
            except ValueError:
                raise ValueError(
                    "Error in hard, soft or soft_seconds setting in buffer limit configuration."
                ) from None
            limits[name] = BufferLimit(hard, soft, seconds)
        return OutputBufferLimits(**limits)

    def show(self, value: Value) -> str:
        """Return all classes, in Redis's order."""
        assert isinstance(value, OutputBufferLimits)
        classes = {"normal": value.normal, "slave": value.slave, "pubsub": value.pubsub}
        return " ".join(f"{name} {c.hard} {c.soft} {c.seconds}" for name, c in classes.items())
