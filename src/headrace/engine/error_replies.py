"""Errors that the engine raises before a command runs, and the conversion of errors to wire text."""

from __future__ import annotations

import logging

import cython

from headrace.commands.session import Session
from headrace.commands.spec import Command
from headrace.errors import NAME_ECHO_MAX, CommandError, to_text
from headrace.keyspace.log_rate_limiter import LogRateLimiter

ARGUMENT_BYTES_SHOWN_MAX = 128  # total bytes of an unknown command's arguments that the error repeats

# Commands that a subscribed client may send in RESP2, where messages and replies look alike.
SUBSCRIBER_COMMANDS = frozenset(
    b"subscribe unsubscribe psubscribe punsubscribe ssubscribe sunsubscribe ping quit reset".split()
)

HTTP_LOG_INTERVAL_MS = 60_000  # between two lines of the log: any client that can connect could fill it
# An HTTP method with a body, and a header that every HTTP request has.
HTTP_FIRST_WORDS = frozenset({b"post", b"host:"})

# Commands of Redis's other types: clients of job queues and caches begin with one of these.
FOREIGN_TYPE_COMMANDS = {
    word: kind
    for kind, words in {
        "lists": b"""blmove blmpop blpop brpop brpoplpush lindex linsert llen lmove lmpop lpop lpos lpush
            lpushx lrange lrem lset ltrim rpop rpoplpush rpush rpushx""",
        "hashes": b"""hdel hexists hexpire hexpireat hexpiretime hget hgetall hgetdel hgetex hincrby
            hincrbyfloat hkeys hlen hmget hmset hpersist hpexpire hpexpireat hpexpiretime hpttl hrandfield
            hscan hset hsetex hsetnx hstrlen httl hvals""",
        "sets": b"""sadd scard sdiff sdiffstore sinter sintercard sinterstore sismember smembers smismember
            smove spop srandmember srem sscan sunion sunionstore""",
        "sorted sets": b"""bzmpop bzpopmax bzpopmin geoadd geodist geohash geopos geosearch zadd zcard zcount
            zdiff zincrby zinter zinterstore zlexcount zmpop zmscore zpopmax zpopmin zrandmember zrange
            zrangebylex zrangebyscore zrangestore zrank zrem zremrangebylex zremrangebyrank zremrangebyscore
            zrevrange zrevrangebyscore zrevrank zscan zscore zunion zunionstore""",
    }.items()
    for word in words.split()
}

LINE_BREAKS_TO_SPACES = bytes.maketrans(b"\r\n", b"  ")


class InternalError(CommandError):
    text = "ERR internal error, the request had no effect or part of its effect; see the server's log"


class NotAllowedInTransaction(CommandError):
    text = "ERR Command not allowed inside a transaction"


class Loading(CommandError):
    text = "LOADING Redis is loading the dataset in memory"


class ReadOnlyReplica(CommandError):
    text = "READONLY You can't write against a read only replica."


class PrimaryLinkDown(CommandError):
    text = "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'."


class SubscriberModeOnly(CommandError):
    """A command that a subscribed client may not run in RESP2; `name` is lower case."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET"
            " are allowed in this context"
        )


class ExecAborted(CommandError):
    """The reply to a malformed EXEC."""

    def __init__(self, error: CommandError) -> None:
        reason: str = error.args[0]
        super().__init__(f"EXECABORT Transaction discarded because of: {reason.removeprefix('ERR ')}")


def allowed_while_subscribed(command: Command) -> bool:
    """Return whether a subscribed client may run the command in RESP2."""
    return command.name in SUBSCRIBER_COMMANDS


def unknown_command_error(
    session: Session, argv: list[bytes], http_log_limiter: LogRateLimiter
) -> CommandError:
    """Return the error for an unknown command; it repeats the beginning of the request.

    A client that speaks HTTP is closed: a web page could make a browser send requests to this port.
    """
    if argv[0].lower() in HTTP_FIRST_WORDS:
        session.closing = True
        if http_log_limiter.try_acquire(session.last_request_ms):
            address = session.address.decode(errors="replace")
            logging.getLogger("headrace").warning(
                "closing %s: it speaks HTTP, perhaps for a page in a browser", address
            )
    kind = FOREIGN_TYPE_COMMANDS.get(argv[0].lower())
    if kind is not None:
        return CommandError(
            f"ERR unknown command '{to_text(argv[0])}': Headrace has no {kind}, only streams and strings;"
            " COMMAND LIST names its commands"
        )
    name = argv[0][:NAME_ECHO_MAX]
    arguments = b""
    for word in argv[1:]:
        room = ARGUMENT_BYTES_SHOWN_MAX - len(arguments)
        if room <= 0:
            break
        arguments += b"'" + word[:room] + b"' "
    return CommandError(
        f"ERR unknown command '{to_text(name)}', with args beginning with: {to_text(arguments)}"
    )


def unknown_subcommand_error(argv: list[bytes]) -> CommandError:
    """Return the error for an unknown subcommand."""
    container = to_text(argv[0]).upper()
    return CommandError(f"ERR unknown subcommand '{to_text(argv[1][:NAME_ECHO_MAX])}'. Try {container} HELP.")


def command_error(exception: Exception, command: Command) -> CommandError:
    """Return the error to reply with; log an exception that is not a CommandError as a bug."""
    if isinstance(exception, CommandError):
        return exception
    logging.getLogger("headrace").error("a bug in %s", command.name.decode(), exc_info=exception)
    return InternalError()


def wire_text(error: CommandError) -> bytes:
    """Return the error's text as one line of bytes."""
    text: str = error.args[0]
    return text.encode("utf-8", "surrogateescape").translate(LINE_BREAKS_TO_SPACES)
