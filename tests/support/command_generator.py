"""Random commands from a seed and a grammar; the tests of one grammar differ in what they compare.

    command = 12* XADD <key> [5% NOMKSTREAM] <next-id> f <int 0 99>      # 12 times as often as
            | XDEL <key> <id>{1,7}                                       # this: one to seven IDs
    key     = 40* s | 30* t | 2* none

One alternative of a rule is chosen, by weight. `<name>` stands for another rule, or for a source: a method of
CommandGenerator that bears @source and may take arguments. `[5% …]` is there in 5 of 100 cases, `[…]` in 50,
`{1,7}` repeats what precedes it. References inside a word are joined with it: `(<id>`. Words in double quotes
are bytes literals of Python. A grammar may include another: `include groups`. Its own rules replace those.
"""

from __future__ import annotations

import ast
import functools
import pathlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

DIRECTORY = pathlib.Path(__file__).parent.parent / "grammars"
TOKEN = re.compile(
    r'"(?:[^"\\]|\\.)*"|\[(?:\d+%)?|\]|\||\d+\*(?=\s)|\{\d+,\d+\}|(?:<[^>]+>|[^\s\[\]{}|<>"]|[<>])+'
)
REFERENCE = re.compile(r"<([a-z][^>]*)>")
Command = list[bytes]
Words = bytes | list[bytes]


@dataclass
class Reference:
    """A rule or source by its name, with the arguments of a source."""

    name: str
    arguments: list[str]


@dataclass
class Word:
    """One word, joined from its parts."""

    parts: list[bytes | Reference]


@dataclass
class Choice:
    """One of some sequences by weight; each is repeated `low` to `high` times, or there by `probability`."""

    weights: list[int] = field(default_factory=list)
    sequences: list[list[Element]] = field(default_factory=list)
    probability: float = 1.0


@dataclass
class Repeat:
    """An element, some times."""

    element: Element
    low: int
    high: int


Element = Word | Reference | Choice | Repeat


@functools.cache
def read_grammar(name: str) -> dict[str, Choice]:
    """Read tests/grammars/NAME.txt; return its rules by name."""
    return parse(DIRECTORY.joinpath(f"{name}.txt").read_text())


def parse(text: str) -> dict[str, Choice]:
    """Parse a grammar; return its rules by name. Raises ValueError for a rule that is not defined."""
    included: dict[str, Choice] = {}
    rules: dict[str, Choice] = {}
    text = re.sub(r"(^|\s)#.*", "", text)
    for name in re.findall(r"^include (\S+)$", text, re.MULTILINE):
        included |= read_grammar(name)
    for name, body in re.findall(r"^([a-z][\w-]*) *=((?:.*\n?)(?:^[ \t]+.*\n?)*)", text, re.MULTILINE):
        tokens = TOKEN.findall(body)
        rules[name] = choice(tokens, 1.0)
        if tokens:
            raise ValueError(f"rule {name}: unexpected {tokens[0]!r}")
    return included | rules


def alternatives(rule: Choice) -> list[bytes]:
    """Return the alternatives of a rule each of which is one literal word."""
    words = [sequence[0] for sequence in rule.sequences if len(sequence) == 1]
    return [b"".join(each.parts) for each in words if isinstance(each, Word)]


def choice(tokens: list[str], probability: float) -> Choice:
    """Take alternatives from the tokens, up to `]` or the end."""
    made = Choice(probability=probability)
    weight, sequence = 1, []
    while tokens and tokens[0] != "]":
        token = tokens.pop(0)
        if token == "|":
            made.weights.append(weight)
            made.sequences.append(sequence)
            weight, sequence = 1, []
        elif re.fullmatch(r"\d+\*", token):
            weight = int(token[:-1])
        elif token.startswith("{"):
            low, high = token[1:-1].split(",")
            sequence.append(Repeat(sequence.pop(), int(low), int(high)))
        elif re.fullmatch(r"\[(\d+%)?", token):
            sequence.append(choice(tokens, int(token[1:-1] or 50) / 100))
            tokens.pop(0)
        else:
            sequence.append(word(token))
    made.weights.append(weight)
    made.sequences.append(sequence)
    return made


def word(token: str) -> Word | Reference:
    """Return the element of a word; a reference that stands alone may become several words, or none."""
    if token.startswith('"'):
        return Word([ast.literal_eval("b" + token)])
    if REFERENCE.fullmatch(token):
        return reference(token[1:-1])
    parts = REFERENCE.split(token)
    return Word([reference(part) if i % 2 else part.encode() for i, part in enumerate(parts) if part])


def reference(text: str) -> Reference:
    name, *arguments = text.split()
    return Reference(name, arguments)


def source(method: Callable[..., Words]) -> Callable[..., Words]:
    """Mark a method that grammars may refer to; its arguments are words of the grammar."""
    method.is_source = True  # type: ignore[attr-defined]
    return method


class CommandGenerator:
    """Commands from a grammar. The same seed makes the same commands, if it is told the same IDs and times.

    `grammar` is the name of a file in tests/grammars, or the text of a grammar.
    `known` are IDs of entries, the newest last. Without them, IDs count up: see next_ms().
    """

    def __init__(self, grammar: str, seed: int | Random) -> None:
        self.random = seed if isinstance(seed, Random) else Random(seed)
        self.rules = parse(grammar) if "=" in grammar else read_grammar(grammar)
        self.known: list[bytes] = []
        self.clock = 0  # milliseconds of the newest ID that next_ms() made
        self.now = 0  # milliseconds, set by tests whose commands contain times

    def command(self, rule: str = "command") -> Command:
        """Return a command: the words that a rule stands for."""
        words: Command = []
        self._choose(self.rules[rule], words)
        return words

    def commands(self, count: int) -> list[Command]:
        """Return so many commands."""
        return [self.command() for _ in range(count)]

    def _choose(self, choice: Choice, words: Command) -> None:
        if choice.probability == 1 or self.random.random() < choice.probability:
            for element in self.random.choices(choice.sequences, choice.weights)[0]:
                self._put(element, words)

    def _put(self, element: Element, words: Command) -> None:
        if isinstance(element, Word):
            words.append(b"".join(p if isinstance(p, bytes) else self._joined(p) for p in element.parts))
        elif isinstance(element, Choice):
            self._choose(element, words)
        elif isinstance(element, Repeat):
            for _ in range(self.random.randint(element.low, element.high)):
                self._put(element.element, words)
        elif element.name in self.rules:
            self._choose(self.rules[element.name], words)
        else:
            method = getattr(self, element.name.replace("-", "_"))
            assert method.is_source, element.name
            made = method(*element.arguments)
            words += [made] if isinstance(made, bytes) else made

    def _joined(self, reference: Reference) -> bytes:
        words: Command = []
        self._put(reference, words)
        return b" ".join(words)

    # Sources.

    @source
    def integer(self, low: str, high: str) -> Words:
        """A whole number from low to high."""
        return b"%d" % self.random.randint(int(low), int(high))

    @source
    def exponential(self, mean: str) -> Words:
        """A whole number from 0 on, mostly small."""
        return b"%d" % self.random.expovariate(1 / int(mean))

    @source
    def power_of_two(self, highest: str) -> Words:
        return b"%d" % (1 << self.random.randint(0, int(highest)))

    @source
    def repeated(self, text: str, most: str) -> Words:
        """The text up to so many times."""
        return text.encode() * self.random.randint(0, int(most))

    @source
    def next_ms(self, *steps: str) -> Words:
        """The milliseconds of an ID that is newer by one of the steps."""
        self.clock += int(self.random.choice(steps))
        return b"%d" % self.clock

    @source
    def past_ms(self, mean: str) -> Words:
        """The milliseconds of an ID that next_ms() made some steps ago."""
        return b"%d" % max(0, self.clock - int(self.random.expovariate(1 / int(mean))))

    @source
    def known_id(self, mean: str) -> Words:
        """An ID that exists, mostly a new one; one of now if none is known."""
        if not self.known:
            return b"%d-%d" % (self.now, self.random.randrange(3))
        return self.known[-1 - int(self.random.expovariate(1 / int(mean))) % len(self.known)]

    @source
    def now_ms(self, low: str = "0", high: str = "0") -> Words:
        """The time in milliseconds, moved by low to high."""
        return b"%d" % (self.now + self.random.randint(int(low), int(high)))

    @source
    def now_s(self, later: str = "0") -> Words:
        """The time in seconds, moved by `later`."""
        return b"%d" % (self.now // 1000 + int(later))

    @source
    def counted(self, rule: str, low: str, high: str) -> Words:
        """A number, and so many times what the rule stands for."""
        count = self.random.randint(int(low), int(high))
        return [b"%d" % count, *(word for _ in range(count) for word in self.command(rule))]

    @source
    def listed(self, low: str, high: str, *rules: str) -> Words:
        """Some times the first rule, then as many times the next one: keys and then their IDs."""
        count = self.random.randint(int(low), int(high))
        return [word for rule in rules for _ in range(count) for word in self.command(rule)]
