"""Random rules for users, given to a real redis-server and to the engine: both say the same of the user,
and of what he may do. The text of the rules for commands is left out: 7.0 and 8 write it differently.
"""

import random
import re

import pytest

from headrace.commands.table import COMMANDS
from headrace.engine.engine import Engine
from headrace.resp.reply_parser import ReplyParser

ROWS = [row for command in COMMANDS for row in command.unique_subcommands() or [command]]
# In other categories in 8 than in 7.0, or not in 7.0 at all, or with another arity there.
DIFFERENT = re.compile(rb"wait.*|client\|(setinfo|no-touch)|command\|getkeys.*|latency.*|memory\|.*")

KEYS = ["a", "b", "ab", "k:1", "k:2", "zz", ""]
PATTERNS = ["*", "a", "b", "a*", "k:*", "?b", "[ab]", "", "x y", "k:[^1]"]
LETTERS = ["R", "W", "RW", "WR", "r", "w", "RR", "X", ""]
_WORDS = """
    on off nopass resetpass reset clearselectors sanitize-payload skip-sanitize-payload allkeys resetkeys
    allchannels resetchannels allcommands nocommands ON NoPass ALLKEYS +@all -@all >secret >other <secret
    <other <never #nothing !nothing ~* &* + - @read + +| +@ -@ bad %R %~a )
"""
WORDS = [*_WORDS.split(), "", "on "]
DIGEST = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
_CATEGORIES = """
    keyspace read write set sortedset list hash string bitmap hyperloglog geo stream pubsub admin fast slow
    blocking dangerous connection transaction scripting nothing
"""
CATEGORIES = _CATEGORIES.split()


# Since 7.2 a user has this flag if no rule gives another one; here only if a rule gives it.
SANITIZE = b"sanitize-payload"


class Two:
    """The engine and the real server."""

    def __init__(self, peer):
        self.peer = peer
        self.engine = Engine()
        self.session = self.engine.create_session()

    def parse(self, reply):
        if reply[:1] != b"*":
            return reply
        parser = ReplyParser()
        parser.feed(reply)
        return parser.next()

    def ask(self, words):
        """Theirs and ours."""
        argv = [word if isinstance(word, bytes) else word.encode() for word in words]
        self.peer.control.send(argv)
        theirs = self.peer.control.reply()
        self.engine.execute(self.session, argv, 1000)
        return theirs, self.session.reply.take()


@pytest.fixture(scope="module")
def known(peer):
    """The commands that both have."""
    two = Two(peer)
    rows = []
    for row in ROWS:
        theirs, _ = two.ask(["COMMAND", "INFO", row.name])
        if two.parse(theirs) != [None] and not DIFFERENT.fullmatch(row.name):
            rows.append(row)
    return rows


@pytest.fixture(scope="module")
def foreign(peer):
    """The names of the commands and subcommands that only the real server has."""
    two = Two(peer)
    theirs, ours = two.ask(["COMMAND", "LIST"])
    return sorted(name.decode() for name in set(two.parse(theirs)) - set(two.parse(ours)))


class Rules:
    """Random rules and requests."""

    def __init__(self, seed, rows, foreign=()):
        self.random = random.Random(seed)
        self.rows = rows
        self.names = [row.name.decode() for row in rows]
        self.foreign = foreign

    def command_rule(self):
        r = self.random
        sign = r.choice("+++-")
        kind = r.randrange(10)
        name = r.choice(self.foreign if self.foreign and r.randrange(5) == 0 else self.names)
        if kind < 4:
            return sign + name
        if kind == 4:
            return sign + name.partition("|")[0]
        if kind == 5:
            return sign + name + "|" + r.choice(["a", "A", "", "get", "k:1"])
        if kind == 6:
            return sign + name.upper()
        return f"{sign}@{r.choice(CATEGORIES)}"

    def rule(self):
        r = self.random
        kind = r.randrange(20)
        if kind < 8:
            return self.command_rule()
        if kind < 11:
            return "~" + r.choice(PATTERNS)
        if kind < 13:
            return f"%{r.choice(LETTERS)}~{r.choice(PATTERNS)}"
        if kind < 15:
            return "&" + r.choice(PATTERNS)
        if kind < 17:
            return r.choice(WORDS)
        if kind == 17:
            return r.choice("#!") + DIGEST
        return self.selector()

    def selector(self):
        r = self.random
        inner = []
        for _ in range(r.randrange(4)):
            inner.append(
                r.choice([self.command_rule(), "~" + r.choice(KEYS), "&" + r.choice(KEYS), "allkeys"])
            )
            if r.random() < 0.2:
                inner.append(f"%{r.choice(LETTERS)}~{r.choice(KEYS)}")
        return r.choice(["(", "(", "( "]) + " ".join(inner) + r.choice([")", ")", ")", " )", ""])

    def request(self, row):
        """A request of the row's arity."""
        r = self.random
        words = row.name.decode().split("|")
        few = abs(row.arity) + (r.randrange(3) if row.arity < 0 else 0)
        pool = KEYS + ["1", "GET", "STREAMS", "2"]
        while len(words) < few:
            words.append(r.choice(pool))
        if row.name in (b"xread", b"xreadgroup"):
            group = ["GROUP", "g", "c"] if row.name == b"xreadgroup" else []
            words = [words[0], *group, "STREAMS", r.choice(KEYS), r.choice(KEYS), "0", "0"]
        if row.name in (b"eval", b"evalsha", b"eval_ro", b"evalsha_ro", b"fcall", b"fcall_ro"):
            words = [words[0], "return 1", "1", r.choice(KEYS)]
        return words


def without_commands(user):
    """What GETUSER says, but for the texts of rules for commands."""
    facts = dict(zip(user[::2], user[1::2], strict=True))
    facts.pop(b"commands")
    if SANITIZE in facts.get(b"flags", []):
        facts[b"flags"].remove(SANITIZE)
    inner = facts.get(b"selectors", [])
    facts[b"selectors"] = [without_commands(one) if isinstance(one, list) else one for one in inner]
    return facts


def same_denial(reply):
    """8 names the user, 7.0 does not."""
    return re.sub(rb"^\$\d+\r\n(This user|User \S+)", b"$ user", reply)


@pytest.mark.parametrize("seed", range(8))
def test_the_same_rules_make_the_same_user(peer, known, foreign, seed):
    two, rules = Two(peer), Rules(seed, known, foreign)
    taken = 0
    for turn in range(40):
        name = f"u{seed}-{turn % 7}"
        given = [rules.rule() for _ in range(rules.random.choice([1, 1, 2, 3]))]
        theirs, ours = two.ask(["ACL", "SETUSER", name, *given])
        assert ours == theirs, given
        taken += ours == b"+OK\r\n"
        theirs, ours = (two.parse(reply) for reply in two.ask(["ACL", "GETUSER", name]))
        if isinstance(theirs, list) and isinstance(ours, list):
            assert without_commands(ours) == without_commands(theirs), given
        else:
            assert ours == theirs
        for row in rules.random.sample(known, 25):
            request = rules.request(row)
            theirs, ours = two.ask(["ACL", "DRYRUN", name, *request])
            assert same_denial(ours) == same_denial(theirs), (name, given, request)
    assert taken > 5
    for turn in range(7):
        two.ask(["ACL", "DELUSER", f"u{seed}-{turn}"])


@pytest.mark.parametrize("category", [f"@{name}" for name in CATEGORIES[:-1]] + ["@all"])
def test_every_category_allows_the_same_commands_on_the_same_keys(peer, known, category):
    """Every command that both have, by category; on keys that may be read, written, both, or not."""
    two, rules = Two(peer), Rules(1, known)
    two.ask(["ACL", "SETUSER", "matrix", "reset", "+" + category, "%R~a", "%W~b", "~ab", "&a"])
    for row in known:
        for _ in range(3):
            request = rules.request(row)
            theirs, ours = two.ask(["ACL", "DRYRUN", "matrix", *request])
            assert same_denial(ours) == same_denial(theirs), request
    theirs, ours = two.ask(["ACL", "CAT", category[1:]])
    if category != "@all":
        names = {row.name for row in known}
        assert set(two.parse(ours)) & names == set(two.parse(theirs)) & names
    two.ask(["ACL", "DELUSER", "matrix"])


def test_every_command_of_a_real_server_can_be_named_in_a_rule(peer, foreign):
    two = Two(peer)
    assert len(foreign) > 100
    for name in foreign:
        for rule in (f"+{name}", f"-{name}", f"+{name}|word", f"-{name}|word", f"+{name}|"):
            theirs, ours = two.ask(["ACL", "SETUSER", "named", rule])
            assert ours == theirs, rule
    two.ask(["ACL", "DELUSER", "named"])


@pytest.mark.parametrize("rule", ["+hgett", "-lpushh", "+cluster|inf", "-config|rewrit", "+nosuch|x"])
def test_a_misspelt_command_is_rejected(peer, rule):
    theirs, ours = Two(peer).ask(["ACL", "SETUSER", "named", rule])
    assert ours == theirs
    assert ours.startswith(b"-ERR Error in ACL SETUSER modifier")


def test_rules_for_commands_that_only_redis_has_are_kept_and_change_nothing(peer):
    two = Two(peer)
    for rules in ("+@all -hset -client|maint_notifications -ft.search", "-@all +get +hget +lpush|a +set"):
        _, ours = two.ask(["ACL", "SETUSER", "named", "reset", "allkeys", *rules.split()])
        assert ours == b"+OK\r\n"
        _, ours = two.ask(["ACL", "GETUSER", "named"])
        assert two.parse(ours)[5] == rules.encode()
        _, ours = two.ask(["ACL", "LIST"])
        assert any(line.endswith(rules.encode()) for line in two.parse(ours))
        _, ours = two.ask(["ACL", "DRYRUN", "named", "SET", "k", "v"])
        assert ours == b"+OK\r\n"
    _, ours = two.ask(["ACL", "DRYRUN", "named", "DEL", "k"])
    assert b"no permissions to run" in ours
    two.ask(["ACL", "DELUSER", "named"])


def test_what_is_said_about_users_that_are_not_there_or_cannot_be(peer):
    two = Two(peer)
    for line in """
        ACL WHOAMI|ACL USERS|ACL LIST|ACL CAT|ACL CAT nothing|ACL GETUSER nobody|ACL DRYRUN nobody get a
        ACL DRYRUN default nothing a|ACL DRYRUN default get|ACL DRYRUN default config|ACL DELUSER default
        ACL DELUSER nobody|ACL GENPASS 0|ACL GENPASS 4097|ACL GENPASS x|ACL LOG x|ACL LOG RESET|ACL LOAD
        ACL SAVE|ACL NOTHING|ACL|ACL SETUSER|ACL LOG 1 2|ACL CAT 1 2|ACL GENPASS 1 2|AUTH x|AUTH default x
        AUTH nobody x|AUTH a b c|AUTH|ACL DRYRUN default config nothing
        ACL DRYRUN default CONFIG!SET a b
    """.replace("\n", "|").split("|"):
        if words := line.replace("!", "|").split():
            theirs, ours = two.ask(words)
            if words == ["ACL", "LIST"]:
                theirs = theirs.replace(b" " + SANITIZE, b"").partition(b"user ")[2]
                ours = ours.partition(b"user ")[2]
            if words == ["ACL", "CAT"]:  # other commands may have other categories
                ours, theirs = (sorted(two.parse(reply)) for reply in (ours, theirs))
            assert ours == theirs, line
