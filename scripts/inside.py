"""Draw the pictures of docs/inside.md, from a new server with the same entries each time.

python scripts/inside.py [DIRECTORY]
"""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import matplotlib
import redis
from PIL import Image, ImageDraw, ImageFont
from rich.console import Console, RenderableType
from rich.style import Style
from rich.terminal_theme import SVG_EXPORT_THEME as THEME

from headrace.cli.commands.inspect import draw, fetch_stream_snapshot
from headrace.cli.commands.top import request_sender
from headrace.cli.connections.child_server import temporary_server
from headrace.console.server_stats import collect_stats
from headrace.console.top_picture import StatsHistory, top_picture

DOCS = Path(__file__).parent.parent / "docs"
FONTS = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
SIZE, LINE, EDGE, WIDTH = 28, 33, 24, 118  # pixels; WIDTH: characters per line
BLOCK_CHARACTERS = {"█": (0, 2), "▀": (0, 1), "▄": (1, 2)}  # drawn as rectangles: fonts leave gaps
FIRST_MS, STEP_MS = 1_700_000_000_000, 137

Colour = tuple[int, int, int]


def fill(client: Any) -> None:
    """Add orders, a few with other fields, delete some; add three groups."""
    for n in range(1, 480):
        fields = {"item": ("pear", "apple", "quince")[n % 3], "amount": n % 17, "price": f"{n % 7}.50"}
        if n % 9 == 0:
            fields = {"item": "pear", "note": "a gift: please wrap"}
        client.xadd("orders", fields, id=entry_id(n))
    client.xdel("orders", *(entry_id(n) for n in (3, 14, 15, 16, 17, 26, 402)))
    for name, start in (("billing", "0"), ("late", "$"), ("mail", "0")):
        client.xgroup_create("orders", name, start)
    for consumer, count in (("ann", 9), ("bob", 8), ("carl", 7), ("ann", 150), ("bob", 120)):
        reply = client.xreadgroup("billing", consumer, {"orders": ">"}, count=count)
        ids = [found for found, _ in reply[0][1]]
        client.xack("orders", "billing", *(found for at, found in enumerate(ids) if at % 23 > 2))
    client.xclaim("orders", "billing", "bob", 0, [entry_id(2)])
    reply = client.xreadgroup("mail", "dora", {"orders": ">"}, count=400)
    client.xack("orders", "mail", *(found for found, _ in reply[0][1]))


def entry_id(n: int) -> str:
    return f"{FIRST_MS + n * STEP_MS}-0"


def top_frame(client: Any, url: str) -> RenderableType:
    """Return a frame of `headrace top` while entries are added."""
    history = StatsHistory()
    client.xgroup_create("clicks", "trends", "$", mkstream=True)
    with request_sender(url) as ask:
        for second in range(9):
            for n in range(200 + 150 * (second * 7 % 5)):
                client.xadd("clicks", {"page": n % 50}, id="*", maxlen=1000)
            client.xreadgroup("trends", "eve", {"clicks": ">"}, count=400, noack=True)
            time.sleep(0.05)
            history.add(collect_stats(ask, consumers=False, memory=True))
    return top_picture(history, "redis://127.0.0.1:7777", "rate", None)


def main() -> None:
    directory = Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS
    with temporary_server() as url, redis.Redis.from_url(url) as client:
        fill(client)
        specimen = fetch_stream_snapshot("orders", url, False)
        specimen.source_name = "redis://127.0.0.1:7777"
        for part, node in (("tree", "0"), ("node", "0"), ("groups", "0")):
            save_picture(draw(specimen, node, 3, 12, (part,)), directory / f"inside-{part}.png")
        save_picture(top_frame(client, url), directory / "top.png", 84)


def save_picture(what: RenderableType, path: Path, width: int = WIDTH) -> None:
    """Save what a terminal of this width shows as an image."""
    console = Console(
        width=width, file=io.StringIO(), force_terminal=True, color_system="truecolor", highlight=False
    )
    lines = console.render_lines(what, console.options, pad=False)
    fonts = [ImageFont.truetype(FONTS / f"DejaVuSansMono{kind}.ttf", SIZE) for kind in ("", "-Bold")]
    step = fonts[0].getlength("M")
    background = tuple(THEME.background_color)
    image = Image.new("RGB", (round(step * width) + 2 * EDGE, LINE * len(lines) + 2 * EDGE), background)
    drawing = ImageDraw.Draw(image)
    for row, line in enumerate(lines):
        x, y = float(EDGE), EDGE + row * LINE
        for segment in line:
            style = segment.style or Style()
            foreground, cell_background = colours(style)
            for letter in segment.text:
                right, below = round(x + step), y + LINE
                if cell_background is not None:
                    drawing.rectangle((round(x), y, right, below - 1), fill=cell_background)
                if letter in BLOCK_CHARACTERS:
                    top, bottom = (y + LINE * half // 2 for half in BLOCK_CHARACTERS[letter])
                    drawing.rectangle((round(x), top, right - 1, bottom - 1), fill=foreground)
                elif letter != " ":
                    drawing.text((x, y), letter, font=fonts[bool(style.bold)], fill=foreground)
                x += step
    image.quantize(256).save(path, optimize=True)


def colours(style: Style) -> tuple[Colour, Colour | None]:
    """Return the colours of the characters and of their background, if that is not the default."""
    default = THEME.foreground_color
    foreground = colour(default if style.color is None else style.color.get_truecolor(THEME))
    background = colour(style.bgcolor.get_truecolor(THEME)) if style.bgcolor else None
    if style.dim:
        foreground = colour((a + b) // 2 for a, b in zip(foreground, THEME.background_color, strict=True))
    if style.reverse:
        return colour(THEME.background_color), foreground
    return foreground, background


def colour(parts: Iterable[int]) -> Colour:
    """Return red, green and blue as a colour."""
    red, green, blue = parts
    return red, green, blue


if __name__ == "__main__":
    main()
