"""Rows of the command table: their notation, and that each declares all that its keys need."""

import pytest

from headrace.access.selector import READ, READ_WRITE, WRITE
from headrace.commands.key_specs import Span, parse_key_specs, parse_span, required_access, shown_span
from headrace.commands.server import known_scripts
from headrace.commands.spec import REDACTED, Command
from headrace.commands.table import COMMANDS, COMMANDS_BY_NAME, command_of_name

KEY_FLAGS = {"RO", "RW", "OW", "RM", "access", "update", "insert", "delete", "variable_flags", "not_key"}
ROWS = [row for command in COMMANDS for row in [command, *command.unique_subcommands()]]


def row(**declared: object) -> Command:
    return Command("test", -1, lambda call: None, **declared)


@pytest.mark.parametrize(
    ("notation", "positions"),
    [
        ("", []),
        ("1", [1]),
        ("2", [2]),
        ("1..2", [1, 2]),
        ("1..-1", [1, 2, 3, 4]),
        ("1..-2/2", [1, 3]),
        ("2..9", [2, 3, 4]),
    ],
)
def test_a_span_names_positions_of_a_request(notation: str, positions: list[int]) -> None:
    assert parse_span(notation).positions(5) == positions
    if notation:
        assert row(keys=f"{notation}: RO").key_positions([b""] * 5) == positions


def test_a_key_is_shown_with_its_place_and_use() -> None:
    (one,) = parse_key_specs("1..-1/2: OW update")
    assert one.flags == ("OW", "update")
    assert one.begin_search_map == {b"type": b"index", b"spec": {b"index": 1}}
    assert one.find_keys_map == {b"type": b"range", b"spec": {b"lastkey": -1, b"keystep": 2, b"limit": 0}}
    first, second = parse_key_specs("1: RO access, 3: RM delete")
    assert (first.begin_search_map[b"spec"], second.begin_search_map[b"spec"]) == (
        {b"index": 1},
        {b"index": 3},
    )
    assert shown_span((first, second)) == Span(1, 3, 1)
    (counted,) = parse_key_specs("numkeys 2: RO access")
    assert counted.find_keys_map == {
        b"type": b"keynum",
        b"spec": {b"keynumidx": 0, b"firstkey": 1, b"keystep": 1},
    }
    (after,) = parse_key_specs("STREAMS 4: RO access")
    assert after.begin_search_map == {b"type": b"keyword", b"spec": {b"keyword": b"STREAMS", b"startfrom": 4}}
    assert shown_span((after,)) == Span()


@pytest.mark.parametrize("notation", ["1", "RO access", "x: RO", "1..: RO", "1: RO, ", "1/y: RO"])
def test_a_wrong_notation_is_an_error_at_import(notation: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        row(keys=notation)


def test_access_rules_follow_from_what_happens_to_the_users_data() -> None:
    uses = [
        required_access(tuple(flags.split()))
        for flags in ("RO", "RO access", "RW insert", "RM", "RW access update")
    ]
    assert uses == [0, READ, WRITE, 0, READ_WRITE]


def test_every_row_with_keys_says_how_it_uses_them() -> None:
    assert not [row.name for row in ROWS if row.has_keys and not row.key_access_bits]
    assert {flag for row in ROWS for flags in row.key_flags for flag in flags} == KEY_FLAGS
    varying = [row.name for row in ROWS if any("variable_flags" in flags for flags in row.key_flags)]
    assert varying == [row.name for row in ROWS if row.find_key_flags is not None] != []


def test_channels_shown_as_keys_are_none() -> None:
    channel = COMMANDS_BY_NAME[b"spublish"]
    assert channel.shown_key_span == Span(1, 1, 1)
    assert not channel.has_keys and channel.key_positions([b"SPUBLISH", b"c", b"m"]) == []


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("AUTH a b", "AUTH * *"),
        ("AUTH", "AUTH"),
        ("HELLO 3 auth u p SETNAME n", "HELLO 3 auth * * SETNAME n"),
        ("HELLO 3 AUTH u", "HELLO 3 AUTH *"),
        ("CONFIG SET port 1 RequirePass x", "CONFIG SET port 1 RequirePass *"),
        ("CONFIG SET masterauth", "CONFIG SET masterauth"),
        ("ACL SETUSER u >p on", "ACL SETUSER * * *"),
        ("ACL DRYRUN u AUTH p", "ACL DRYRUN u AUTH *"),
        ("SET pass x", "SET pass x"),
    ],
)
def test_passwords_are_not_shown(line: str, shown: str) -> None:
    argv = line.encode().split()
    command = COMMANDS_BY_NAME[argv[0]]
    found = command.subcommand(argv[1]) if command.subcommands else command
    assert found is not None
    assert found.without_secrets(argv) == [
        REDACTED if word == b"*" else word for word in shown.encode().split()
    ]


def test_each_command_of_a_known_script_has_a_row_with_a_key() -> None:
    names = {name for required in known_scripts.REQUIRED_COMMANDS.values() for name in required}
    assert b"xinfo|groups" in names
    for name in names:
        assert command_of_name(name).name == name
        assert command_of_name(name).key_access_bits[0] in (READ, WRITE, READ_WRITE)
