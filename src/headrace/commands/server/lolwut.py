"""LOLWUT: draws the water of a headrace, the channel that leads to a mill.

▂▁▁▂▄▆█▇▅▃▂▁▁▂▃▅▇█▇▅     the surface: a sum of three waves, in eighths of a line
████████████████████     the water below it
"""

from __future__ import annotations

from math import pi, sin

from headrace.commands.arguments import parse_i64
from headrace.commands.call import Call
from headrace.commands.command_rows import server_command

COLUMNS, COLUMNS_MAX = 66, 200
ROWS, ROWS_MAX = 6, 40
LEVELS = " ▁▂▃▄▅▆▇█"
WAVES = 3


def draw(columns: int, rows: int, seed: bytes) -> list[str]:
    """Return the lines of a drawing. Two bytes of the seed make a wave: its length and its phase."""
    waves = [(8 + seed[i] % 32, 2 * pi * seed[i + 1] / 256) for i in range(0, 2 * WAVES, 2)]
    heights = []
    for x in range(columns):
        height = sum(sin(2 * pi * x / length + phase) for length, phase in waves) / WAVES
        heights.append(max(1, round((0.5 + height / 2) * 8 * rows)))  # the channel is never dry
    lines = []
    for row in reversed(range(rows)):
        lines.append("".join(LEVELS[min(max(height - 8 * row, 0), 8)] for height in heights).rstrip())
    return lines


def run_lolwut(call: Call) -> None:
    """LOLWUT [VERSION version [columns [rows]]]: reply with a drawing and the version of the server.

    The given version is ignored.
    """
    numbers = []
    if len(call.argv) > 2 and call.argv[1].upper() == b"VERSION":
        numbers = [parse_i64(word) for word in call.argv[2:]]
    columns = min(max(numbers[1], 1), COLUMNS_MAX) if len(numbers) > 1 else COLUMNS
    rows = min(max(numbers[2], 1), ROWS_MAX) if len(numbers) > 2 else ROWS
    lines = draw(columns, rows, call.server.random_bytes(2 * WAVES))
    lines += [
        "",
        f"Water in a headrace. Redis ver. {call.server.redis_version}, Headrace {call.server.version}",
        "",
    ]
    call.reply.verbatim("\n".join(lines).encode())


COMMANDS = [
    server_command(
        "lolwut",
        -1,
        run_lolwut,
        "5.0.0",
        "Draws something, and returns the version.",
        "[VERSION version [columns [rows]]]",
        "readonly fast",
    )
]
