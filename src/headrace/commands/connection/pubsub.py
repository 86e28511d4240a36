"""Pub/sub: SUBSCRIBE, PSUBSCRIBE, UNSUBSCRIBE, PUNSUBSCRIBE, PUBLISH and PUBSUB.

Subscribing replies with one push for each channel, not one reply for the request. Shard channels (SSUBSCRIBE,
SPUBLISH) are a second set of channels: without a cluster, this server has all of them.
"""

from __future__ import annotations

import cython

from headrace.commands.call import Call
from headrace.commands.command_rows import help_row
from headrace.commands.connection.subscriptions import PubSub
from headrace.commands.rule_effects import ReservedChannel
from headrace.commands.session import Session
from headrace.commands.spec import Command
from headrace.errors import CommandError, UnknownSubcommand
from headrace.keyspace.glob import Glob
from headrace.persistence.rule_records import CHANNEL as RULES_CHANNEL


class ChannelTooLong(CommandError):
    text = "ERR the channel's name is too long to be compared with all patterns that clients subscribe to"


class SubscriptionInTransaction(CommandError):
    text = "ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client"


@cython.cfunc
def reply_subscription(call: Call, kind: bytes, name: bytes | None) -> cython.void:
    """Write the confirmation for a channel or pattern, with the client's number of subscriptions.

    Subscriptions to shard channels are counted separately.

    Args:
        name: the channel or pattern; None if the client unsubscribed from all but had no subscription.
    """
    session: Session = call.session
    call.reply.push(3)
    call.reply.bulk(kind)
    if name is None:
        call.reply.null()
    else:
        call.reply.bulk(name)
    if kind == b"ssubscribe" or kind == b"sunsubscribe":
        call.reply.integer(len(session.shard_channels))
    else:
        call.reply.integer(len(session.channels) + len(session.patterns))
    session.force_reply = session.is_muted()


def run_subscribe(call: Call) -> None:
    """SUBSCRIBE: subscribe to channels."""
    pubsub: PubSub = call.engine.pubsub
    for name in call.argv[1:]:
        pubsub.subscribe(call.session, name)
        reply_subscription(call, b"subscribe", name)


def run_psubscribe(call: Call) -> None:
    """PSUBSCRIBE: subscribe to all channels that match one of the patterns."""
    pubsub: PubSub = call.engine.pubsub
    for glob in call.argv[1:]:
        Glob(glob)  # raises an error before anything is subscribed to
    for glob in call.argv[1:]:
        pubsub.subscribe_pattern(call.session, glob)
        reply_subscription(call, b"psubscribe", glob)


def run_unsubscribe(call: Call) -> None:
    """UNSUBSCRIBE: unsubscribe from these channels, or from all."""
    pubsub: PubSub = call.engine.pubsub
    names = call.argv[1:] or list(call.session.channels)
    for name in names:
        pubsub.unsubscribe(call.session, name)
        reply_subscription(call, b"unsubscribe", name)
    if not names:
        reply_subscription(call, b"unsubscribe", None)


def run_punsubscribe(call: Call) -> None:
    """PUNSUBSCRIBE: unsubscribe from these patterns, or from all."""
    pubsub: PubSub = call.engine.pubsub
    globs = call.argv[1:] or list(call.session.patterns)
    for glob in globs:
        pubsub.unsubscribe_pattern(call.session, glob)
        reply_subscription(call, b"punsubscribe", glob)
    if not globs:
        reply_subscription(call, b"punsubscribe", None)


def run_publish(call: Call) -> None:
    """PUBLISH: send a message; reply with the number of subscriptions it reached."""
    pubsub: PubSub = call.engine.pubsub
    if call.argv[1] == RULES_CHANNEL:
        raise ReservedChannel()
    if pubsub.takes_too_long_to_match(call.argv[1]):
        raise ChannelTooLong()
    call.reply.integer(pubsub.publish(call.argv[1], call.argv[2]))
    call.server.replication.publish_to_replicas([b"PUBLISH", call.argv[1], call.argv[2]])


def run_ssubscribe(call: Call) -> None:
    """SSUBSCRIBE: subscribe to shard channels."""
    pubsub: PubSub = call.engine.pubsub
    if not call.policy.may_block:
        raise SubscriptionInTransaction()
    for name in call.argv[1:]:
        pubsub.subscribe_shard(call.session, name)
        reply_subscription(call, b"ssubscribe", name)


def run_sunsubscribe(call: Call) -> None:
    """SUNSUBSCRIBE: unsubscribe from these shard channels, or from all."""
    pubsub: PubSub = call.engine.pubsub
    names = call.argv[1:] or list(call.session.shard_channels)
    for name in names:
        pubsub.unsubscribe_shard(call.session, name)
        reply_subscription(call, b"sunsubscribe", name)
    if not names:
        reply_subscription(call, b"sunsubscribe", None)


def run_spublish(call: Call) -> None:
    """SPUBLISH: send a message to a shard channel; reply with the number of clients it reached."""
    pubsub: PubSub = call.engine.pubsub
    call.reply.integer(pubsub.publish_to_shard(call.argv[1], call.argv[2]))
    call.server.replication.publish_to_replicas([b"SPUBLISH", call.argv[1], call.argv[2]])


def run_channels(call: Call) -> None:
    """PUBSUB CHANNELS: reply with the channels subscribed to by name, or those that match a pattern."""
    _reply_names(call, call.engine.pubsub.channel_subscribers)


def _reply_names(call: Call, listeners: dict[bytes, dict[Session, None]]) -> None:
    if len(call.argv) > 3:
        raise UnknownSubcommand("PUBSUB", call.argv[1])
    names = list(listeners)
    if len(call.argv) == 3:
        pattern: Glob = Glob(call.argv[2])
        names = [name for name in names if pattern.matches(name)]
    call.reply.value(names)


def run_numsub(call: Call) -> None:
    """PUBSUB NUMSUB: reply with each channel and its number of subscribers by name."""
    _reply_counts(call, call.engine.pubsub.channel_subscribers)


def _reply_counts(call: Call, listeners: dict[bytes, dict[Session, None]]) -> None:
    names = call.argv[2:]
    call.reply.array(2 * len(names))
    for name in names:
        call.reply.bulk(name)
        call.reply.integer(len(listeners.get(name, ())))


def run_numpat(call: Call) -> None:
    """PUBSUB NUMPAT: reply with the number of different patterns."""
    call.reply.integer(len(call.engine.pubsub.pattern_subscribers))


def run_shardchannels(call: Call) -> None:
    """PUBSUB SHARDCHANNELS: reply with the shard channels that have subscribers; a pattern selects some."""
    _reply_names(call, call.engine.pubsub.shard_channel_subscribers)


def run_shardnumsub(call: Call) -> None:
    """PUBSUB SHARDNUMSUB: reply with each shard channel and its number of subscribers."""
    _reply_counts(call, call.engine.pubsub.shard_channel_subscribers)


SUBCOMMANDS = [
    Command(
        "pubsub|channels",
        -2,
        run_channels,
        "pubsub loading stale",
        group="pubsub",
        since="2.8.0",
        summary="Lists the channels that have subscribers by name.",
        syntax="[pattern]",
        complexity="O(N), N being the number of channels",
    ),
    Command(
        "pubsub|numpat",
        2,
        run_numpat,
        "pubsub loading stale",
        group="pubsub",
        since="2.8.0",
        summary="Counts the patterns that have subscribers.",
    ),
    Command(
        "pubsub|numsub",
        -2,
        run_numsub,
        "pubsub loading stale",
        group="pubsub",
        since="2.8.0",
        summary="Counts the subscribers of channels, without patterns.",
        syntax="[channel [channel ...]]",
        complexity="O(N), N being the number of channels named",
    ),
    Command(
        "pubsub|shardchannels",
        -2,
        run_shardchannels,
        "pubsub loading stale",
        group="pubsub",
        since="7.0.0",
        summary="Lists the shard channels that have subscribers.",
        syntax="[pattern]",
        complexity="O(N), N being the number of shard channels",
    ),
    Command(
        "pubsub|shardnumsub",
        -2,
        run_shardnumsub,
        "pubsub loading stale",
        group="pubsub",
        since="7.0.0",
        summary="Counts the subscribers of shard channels.",
        syntax="[shardchannel [shardchannel ...]]",
        complexity="O(N), N being the number of channels named",
    ),
]

COMMANDS = [
    Command(
        "subscribe",
        -2,
        run_subscribe,
        "pubsub noscript loading stale",
        channels="1..-1",
        group="pubsub",
        since="2.0.0",
        summary="Subscribes to channels.",
        syntax="channel [channel ...]",
        complexity="O(N), N being the number of channels named",
    ),
    Command(
        "psubscribe",
        -2,
        run_psubscribe,
        "pubsub noscript loading stale",
        patterns="1..-1",
        group="pubsub",
        since="2.0.0",
        summary="Subscribes to all channels that match patterns.",
        syntax="pattern [pattern ...]",
        complexity="O(N), N being the number of patterns named",
    ),
    Command(
        "unsubscribe",
        -1,
        run_unsubscribe,
        "pubsub noscript loading stale",
        group="pubsub",
        since="2.0.0",
        summary="Unsubscribes from channels, or from all if none is named.",
        syntax="[channel [channel ...]]",
        complexity="O(N), N being the number of channels left",
    ),
    Command(
        "punsubscribe",
        -1,
        run_punsubscribe,
        "pubsub noscript loading stale",
        group="pubsub",
        since="2.0.0",
        summary="Unsubscribes from patterns, or from all if none is named.",
        syntax="[pattern [pattern ...]]",
        complexity="O(N), N being the number of patterns left",
    ),
    Command(
        "publish",
        3,
        run_publish,
        "pubsub loading stale fast",
        channels="1",
        group="pubsub",
        since="2.0.0",
        summary="Sends a message to a channel; returns how many subscriptions it reached.",
        syntax="channel message",
        complexity="O(N+M), N being the number of subscribers and M that of all patterns",
    ),
    Command(
        "ssubscribe",
        -2,
        run_ssubscribe,
        "pubsub noscript loading stale",
        keys="1..-1: not_key",
        channels="1..-1",
        group="pubsub",
        since="7.0.0",
        summary="Subscribes to shard channels.",
        syntax="shardchannel [shardchannel ...]",
        complexity="O(N), N being the number of channels named",
    ),
    Command(
        "sunsubscribe",
        -1,
        run_sunsubscribe,
        "pubsub noscript loading stale",
        keys="1..-1: not_key",
        group="pubsub",
        since="7.0.0",
        summary="Unsubscribes from shard channels, or from all if none is named.",
        syntax="[shardchannel [shardchannel ...]]",
        complexity="O(N), N being the number of channels left",
    ),
    Command(
        "spublish",
        3,
        run_spublish,
        "pubsub loading stale fast",
        keys="1: not_key",
        channels="1",
        group="pubsub",
        since="7.0.0",
        summary="Sends a message to a shard channel; returns how many clients it reached.",
        syntax="shardchannel message",
        complexity="O(N), N being the number of subscribers",
    ),
    Command(
        "pubsub",
        -2,
        None,
        "",
        group="pubsub",
        since="2.8.0",
        summary="Lists and counts subscriptions.",
        complexity="Depends on the subcommand",
        subcommands=[*SUBCOMMANDS, help_row("pubsub", SUBCOMMANDS, "6.2.0")],
    ),
]
