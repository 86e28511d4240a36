"""The types of directives' values: read from words, shown as text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

from headrace.keyspace import events
from headrace.server.loop.client_limits import BufferLimit, OutputBufferLimits


@dataclass(frozen=True)
class Rules:
    """When to save snapshots: pairs of seconds and changes."""

    pairs: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Numbers:
    """Several numbers."""

    numbers: tuple[float, ...]


@dataclass(frozen=True)
class UserLines:
    """Users, each as the words behind `user`: name and rules."""

    lines: tuple[tuple[str, ...], ...] = ()


Value = int | bool | str | list[str] | OutputBufferLimits | Rules | Numbers | UserLines

U31_MAX = (1 << 31) - 1
I63_MAX = (1 << 63) - 1

_UNITS = {"": 1, "b": 1, "k": 1000, "kb": 1 << 10, "m": 10**6, "mb": 1 << 20, "g": 10**9, "gb": 1 << 30}
_MEMORY = re.compile(r"(\d{1,19})([kmg]?b?)", re.IGNORECASE)


class DirectiveType(Protocol):
    """A type of value: read from words, shown as one text. A ValueError's text is for the operator."""

    @property
    def syntax(self) -> str:
        """What may be given, in a few words of Markdown."""

    def parse(self, words: list[str]) -> Value:
        """The value that the words of a line or of CONFIG SET say."""

    def show(self, value: Value) -> str:
        """The value as CONFIG GET answers it."""


def bound(number: int) -> str:
    """A bound as people read it: a large one as a power of two."""
    if number < 1 << 20:
        return str(number)
    bits = number.bit_length()
    return f"2^{bits - 1}" if number == 1 << (bits - 1) else f"2^{bits}-1"


def single_word(words: list[str]) -> str:
    """The only word."""
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
        """Between which bounds."""
        return f"number, {bound(self.least)} to {bound(self.most)}"

    def parse(self, words: list[str]) -> Value:
        """Digits, perhaps signed."""
        word = single_word(words)
        if not re.fullmatch(r"-?\d{1,19}", word):
            raise ValueError("argument couldn't be parsed into an integer")
        return check_range(int(word), self.least, self.most)

    def show(self, value: Value) -> str:
        """Digits."""
        return str(value)


def check_range(number: int, least: int, most: int) -> int:
    """The number, if it lies between the bounds."""
    if not least <= number <= most:
        raise ValueError(f"argument must be between {least} and {most} inclusive")
    return number


@dataclass(frozen=True)
class Memory:
    """Bytes: 1024, 1kb, 1k (1000), 512mb, 1gb."""

    least: int
    most: int

    @property
    def syntax(self) -> str:
        """Between which bounds."""
        return f"bytes, {bound(self.least)} to {bound(self.most)}"

    def parse(self, words: list[str]) -> Value:
        """Digits and perhaps a unit."""
        return check_range(parse_memory(single_word(words)), self.least, self.most)

    def show(self, value: Value) -> str:
        """Plain bytes."""
        return str(value)


def parse_memory(word: str) -> int:
    """The bytes that a word such as 64mb says."""
    found = _MEMORY.fullmatch(word)
    if found is None or found[2].lower() not in _UNITS:
        raise ValueError("argument must be a memory value")
    return int(found[1]) * _UNITS[found[2].lower()]


@dataclass(frozen=True)
class Flag:
    """yes or no."""

    syntax = "`yes`, `no`"

    def parse(self, words: list[str]) -> Value:
        """In either case."""
        word = single_word(words).lower()
        if word not in ("yes", "no"):
            raise ValueError("argument must be 'yes' or 'no'")
        return word == "yes"

    def show(self, value: Value) -> str:
        """yes or no."""
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
        """In either case."""
        said = single_word(words).lower()
        for word in self.words:
            if word.lower() == said:
                return word
        raise ValueError(f"argument(s) must be one of the following: {', '.join(self.words)}")

    def show(self, value: Value) -> str:
        """The word."""
        return str(value)


@dataclass(frozen=True)
class OwnChoice(Choice):
    """A choice with other words than Redis has for it: who asks for one of those is told why not."""

    theirs: tuple[str, ...]
    why: str

    def parse(self, words: list[str]) -> Value:
        """In either case."""
        if single_word(words).lower() in self.theirs:
            raise ValueError(self.why)
        return Choice.parse(self, words)


@dataclass(frozen=True)
class Text:
    """Any text: a path, a name."""

    syntax = "text"

    def parse(self, words: list[str]) -> Value:
        """One word, which may be empty."""
        return single_word(words)

    def show(self, value: Value) -> str:
        """As given."""
        return str(value)


@dataclass(frozen=True)
class FileName:
    """A name within a directory, which the directive names: no path, and not empty."""

    syntax = "name of a file"

    directive: str
    noun: str

    def parse(self, words: list[str]) -> Value:
        """One word without slashes."""
        name = single_word(words)
        if not name:
            raise ValueError(f"{self.directive} can't be empty")
        if "/" in name:
            raise ValueError(f"{self.directive} can't be a path, just a {self.noun}")
        return name

    def show(self, value: Value) -> str:
        """As given."""
        return str(value)


@dataclass(frozen=True)
class SaveRules:
    """Pairs of seconds and changes; no words, or an empty one, for none."""

    syntax = "pairs of seconds and changes"

    def parse(self, words: list[str]) -> Value:
        """Two numbers for each rule."""
        words = [word for text in words for word in text.split()]
        if len(words) % 2 or not all(re.fullmatch(r"\d{1,18}", word) for word in words):
            raise ValueError("Invalid save parameters")
        numbers = [int(word) for word in words]
        if not all(numbers[::2]):
            raise ValueError("Invalid save parameters")
        return Rules(tuple(zip(numbers[::2], numbers[1::2], strict=True)))

    def show(self, value: Value) -> str:
        """All numbers with blanks between them."""
        assert isinstance(value, Rules)
        return " ".join(f"{seconds} {changes}" for seconds, changes in value.pairs)


@dataclass(frozen=True)
class Words:
    """Several words."""

    syntax = "words"

    def parse(self, words: list[str]) -> Value:
        """Each word; one empty word is none."""
        return [word for text in words for word in text.split()]

    def show(self, value: Value) -> str:
        """With blanks between them."""
        assert isinstance(value, list)
        return " ".join(value)


@dataclass(frozen=True)
class Protocols(Words):
    """Versions of TLS; none for all that are safe. Older ones are not offered at all."""

    syntax = "`TLSv1.2`, `TLSv1.3`"

    def parse(self, words: list[str]) -> Value:
        """Names in either case, in one word or several."""
        names = [word for text in words for word in text.lower().split()]
        if old := [word for word in names if word in ("sslv3", "tlsv1", "tlsv1.1")]:
            raise ValueError(f"{old[0]} is not safe and not offered; the oldest is TLSv1.2")
        if unknown := [word for word in names if word not in ("tlsv1.2", "tlsv1.3")]:
            raise ValueError(f"{unknown[0]} is no version of TLS; there are TLSv1.2 and TLSv1.3")
        return [word.replace("tls", "TLS") for word in names]


@dataclass(frozen=True)
class EventClasses:
    """Letters of notify-keyspace-events, kept as bits."""

    syntax = "letters"

    def parse(self, words: list[str]) -> Value:
        """Letters in any order; none is none."""
        return events.parse_classes(single_word(words))

    def show(self, value: Value) -> str:
        """The letters in Redis's order."""
        assert isinstance(value, int)
        return events.format_classes(value)


@dataclass(frozen=True)
class Percentiles:
    """Numbers of 0 to 100."""

    syntax = "numbers, 0 to 100"

    def parse(self, words: list[str]) -> Value:
        """Numbers, perhaps with a fraction; none for none."""
        words = [word for text in words for word in text.split()]
        try:
            numbers = tuple(float(word) for word in words)
        except ValueError:
            raise ValueError("Invalid latency-tracking-info-percentiles parameters") from None
        if not all(0 <= number <= 100 for number in numbers):
            raise ValueError("latency-tracking-info-percentiles parameters should sit between [0.0,100.0]")
        return Numbers(numbers)

    def show(self, value: Value) -> str:
        """With blanks between them."""
        assert isinstance(value, Numbers)
        return " ".join(f"{number:g}" for number in value.numbers)


@dataclass(frozen=True)
class Octal:
    """File permissions, as chmod takes them."""

    syntax = "octal number"

    def parse(self, words: list[str]) -> Value:
        """Octal digits up to 777."""
        word = single_word(words)
        if not re.fullmatch(r"[0-7]{1,4}", word) or int(word, 8) > 0o777:
            raise ValueError("argument must be an octal number up to 777")
        return int(word, 8)

    def show(self, value: Value) -> str:
        """Octal digits."""
        return f"{value:o}"


@dataclass(frozen=True)
class Port:
    """A TCP port; 0 listens on none, `free` on one that the system picks."""

    syntax = "number, 0 to 65535, or `free`"

    def parse(self, words: list[str]) -> Value:
        """Digits, or the word free."""
        if words == ["free"]:
            return "free"
        return Number(0, 65535).parse(words)

    def show(self, value: Value) -> str:
        """Digits, or the word free before the port is open."""
        return str(value)


@dataclass(frozen=True)
class OneUser:
    """A user: his name and his rules. Each line adds one. He is never shown: there are passwords in it."""

    syntax = "name and rules"

    def parse(self, words: list[str]) -> Value:
        """Words, or one text of them; what is wrong with rules is found when users are made."""
        if words == [""]:
            return UserLines()
        if len(words) == 1:  # a variable of the environment
            words = words[0].split()
        if not words or not words[0]:
            raise ValueError("a user needs a name")
        return UserLines((tuple(words),))

    def show(self, value: Value) -> str:
        """Nothing: ACL LIST shows users."""
        return ""


@dataclass(frozen=True)
class BufferLimits:
    """Limits on unread answers, for each class of clients."""

    syntax = "class, hard limit, soft limit, seconds"

    def parse(self, words: list[str]) -> Value:
        """Groups of class, hard limit, soft limit, seconds; a class that is not named has no limits."""
        words = [word for text in words for word in text.split()]
        if not words or len(words) % 4:
            raise ValueError("Wrong number of arguments in buffer limit configuration.")
        limits = {name: BufferLimit(0, 0, 0) for name in ("normal", "slave", "pubsub")}
        for at in range(0, len(words), 4):
            name = {"replica": "slave"}.get(words[at].lower(), words[at].lower())
            if name not in limits:
                raise ValueError("Invalid client class specified in buffer limit configuration.")
            try:
                hard, soft = (check_range(parse_memory(word), 0, I63_MAX) for word in words[at + 1 : at + 3])
                seconds = check_range(int(words[at + 3]), 0, U31_MAX)
            except ValueError:
                raise ValueError(
                    "Error in hard, soft or soft_seconds setting in buffer limit configuration."
                ) from None
            limits[name] = BufferLimit(hard, soft, seconds)
        return OutputBufferLimits(**limits)

    def show(self, value: Value) -> str:
        """All classes, in Redis's order."""
        assert isinstance(value, OutputBufferLimits)
        classes = {"normal": value.normal, "slave": value.slave, "pubsub": value.pubsub}
        return " ".join(f"{name} {c.hard} {c.soft} {c.seconds}" for name, c in classes.items())
