"""Links that are cut at every byte: a replica has a state of its primary at each moment, and catches up.

With HEADRACE_LONG=1 it is every byte, otherwise every fifth, and in `make test` every 31st.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from headrace.replication.replica_link import ReplicaLink
from simulation.cluster import Cluster, Node, PrefixCheck

EVERY = 1 if "HEADRACE_LONG" in os.environ else 5
STEPS = [31, pytest.param(EVERY, marks=pytest.mark.slow)]  # bytes from one cut to the next
ROUNDS_MAX = 400

# Requests whose effects are several records, transactions, and everything else that a group has.
SCRIPT = [
    line.split()
    for line in """
    DEL s t k
    XGROUP CREATE s g 0 MKSTREAM
    XADD s * f 1
    XADD s IDMP producer request * f 2
    XREADGROUP GROUP g ann COUNT 5 STREAMS s >
    MULTI
    XADD s * f 3
    SET k v EX 1000
    XREADGROUP GROUP g bob STREAMS s >
    EXEC
    XADD s IDMP producer request * f 2
    XAUTOCLAIM s g cleo 0 - COUNT 2
    SELECT 1
    XADD t MAXLEN 3 * f 4
    MULTI
    INCR n
    XADD t * f 5
    EXEC
    SELECT 0
    XNACK s g FAIL IDS 1 %
    XACK s g %
    XREADGROUP GROUP g ann STREAMS s 0
    XTRIM s MAXLEN = 1 DELREF
    """.strip().splitlines()
]


SHORT = SCRIPT[: SCRIPT.index(["EXEC"]) + 1]


def run_script(primary: Node, between: Callable[[], None], script: list[list[str]] = SCRIPT) -> None:
    """Run the script, each request in a turn of its own."""
    for words in script:
        newest = primary.ask("XREVRANGE", "s", "+", "-", "COUNT", 1) if "%" in words else []
        assert isinstance(newest, list)
        primary.ask(*(newest[0][0] if word == "%" else word for word in words))
        primary.turn()
        between()


@pytest.mark.parametrize("step", STEPS)
def test_a_stream_may_be_cut_at_every_byte(step: int) -> None:
    with Cluster() as cluster:
        primary, replica = cluster.add(), cluster.add("--appendonly", "no")
        replica.follow(primary)
        cluster.settle()
        states = PrefixCheck(cluster)
        states.note(primary)

        def step_on() -> None:
            states.note(primary)
            cluster.network.pump()
            replica.turn()
            states.check(replica)

        cuts, cut_after = 0, 0
        while cuts == cut_after // step:
            wire = cluster.network.of(replica.port)[0]
            wire.cut_after = wire.down.delivered + cut_after
            cut_after += step
            run_script(primary, step_on)
            cuts += wire.is_cut
            for _ in range(ROUNDS_MAX):
                cluster.round(300)
                states.note(primary)
                states.check(replica)
                if cluster.is_settled() and cluster.network.wires:
                    break
            cluster.network.wires[0].cut_after = -1
            assert replica.data() == primary.data()
        assert cut_after > 1000
        assert primary.replication.primary_side.full_syncs == 1
        assert primary.replication.primary_side.partial_syncs == cuts


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("diskless", ["yes", "no"])
def test_a_full_synchronisation_may_be_cut_at_every_byte(step: int, diskless: str) -> None:
    with Cluster() as cluster:
        primary = cluster.add("--repl-diskless-sync", diskless)
        replica = cluster.add("--appendonly", "no")
        replica.follow(primary)
        cluster.settle()
        states = PrefixCheck(cluster)
        run_script(primary, lambda: states.note(primary))
        cluster.settle()
        side = replica.replication.replica_side
        connections, cut_after, full_syncs = cluster.network.connections, 0, side.full_syncs
        was_cut = True
        while was_cut:
            old = replica.data()
            cluster.network.cut_next_after = cut_after
            cut_after += step
            side.start("127.0.0.1", primary.port, None, 0)
            done = side.full_syncs

            def step_on(old: object = old, done: int = done) -> None:
                cluster.round(40)
                states.note(primary)
                if side.full_syncs > done:
                    states.check(replica)
                else:
                    assert replica.data() == old

            run_script(primary, step_on, SHORT)
            for _ in range(ROUNDS_MAX):
                step_on()
                if cluster.is_settled() and side.full_syncs > done:
                    break
            assert replica.data() == primary.data()
            was_cut = cluster.network.connections - connections > 1
            connections = cluster.network.connections
        assert cut_after > 800 and side.full_syncs > full_syncs


def test_a_link_that_continues_within_a_transaction_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReplicaLink, "offset", property(lambda self: self.command_reader().parsed_offset))
    with pytest.raises(AssertionError, match=r"^offset \d+: "):
        test_a_stream_may_be_cut_at_every_byte(31)
