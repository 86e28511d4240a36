"""Draw a node's listpack: a map of all its bytes, then its elements in strips, byte by byte.

╭ flags ┬ ms-delta ┬ seq-delta ┬ = pear ┬ lp-count ╮   the element's name
│ 2     │ 0        │ 0         │ "ripe" │ 4        │   its value: only text in quotes
│ 02 01 │ 00 01    │ 00 01     │ 84 72… │ 04 01    │   its bytes: encoding, payload, trailing length
╰ 45 ───┴ 47 ──────┴ 49 ───────┴ 51 ────┴ 57 ──────╯   its offset
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from headrace.console import node_parser, styles
from headrace.console.escaping import printable
from headrace.console.node_parser import Element, Entry, NamedElement, ParsedNode
from headrace.plurals import plural

MAP_WIDTH = 64  # bytes in half a line of the map
MAP_MAX = 64 * 128  # bytes in the map
HEX_MAX = 10  # bytes of an element drawn as hexadecimal
VALUE_MAX = 24
MARGIN = 2


class NodePicture:
    """A drawing of one node, as wide as the console."""

    def __init__(self, node: ParsedNode, entries: int) -> None:
        self.node = node
        self.limit = entries  # entries drawn by element; the last one always is

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from byte_map(self.node)
        yield Text()
        for title, parts, dead in self.sections():
            yield title
            yield from draw_strips(parts, options.max_width - MARGIN, dead)

    def sections(self) -> Iterator[tuple[Text, list[NamedElement], bool]]:
        """Return the parts of the drawing: title, elements, whether they are deleted."""
        node = self.node
        yield Text("header", "bold"), header_parts(node), False
        about = Text.assemble(("master entry", "bold"), (f" of {node.ms}-{node.seq}", styles.GREY))
        yield about, node.master_parts, False
        shown = node.entries if len(node.entries) <= self.limit + 1 else node.entries[: self.limit]
        for entry in shown:
            yield self.entry_title(entry), entry.parts, entry.is_deleted
        left = len(node.entries) - len(shown)
        if left > 1:
            about = Text(f"… {plural(left - 1, 'entry')} more", styles.GREY)
            yield about, [], False
        if left:
            last = node.entries[-1]
            yield self.entry_title(last), last.parts, last.is_deleted
        end = len(node.data) - 1
        yield (
            Text("end", "bold"),
            [NamedElement("end", node_parser.HEADER, Element(end, 0, 1, 0, b"", node.data[end:]))],
            False,
        )

    def entry_title(self, entry: Entry) -> Text:
        """Return the title of an entry."""
        text = Text.assemble(
            ("entry ", "bold"),
            (str(entry.ms), f"bold {styles.MS}"),
            ("-", "bold"),
            (str(entry.seq), f"bold {styles.SEQ}"),
        )
        text.append(f"  {entry.end - entry.offset} bytes", styles.GREY)
        if entry.flags & node_parser.SAME_FIELDS:
            text.append(", same fields as the master entry", styles.GREY)
        if entry.is_deleted:
            text.append("  deleted: a tombstone", styles.ALERT)
        return text


def header_parts(node: ParsedNode) -> list[NamedElement]:
    """Return the two numbers of the header as elements."""
    return [
        NamedElement("total bytes", node_parser.HEADER, Element(0, 0, 4, 0, len(node.data), node.data[:4])),
        NamedElement("elements", node_parser.HEADER, Element(4, 0, 2, 0, node.element_count, node.data[4:6])),
    ]


def byte_map(node: ParsedNode) -> Iterator[Text]:
    """Yield the lines of a map of the node's bytes, then those of a legend.

    Each byte is half a character. Its colour shows its role. At most MAP_MAX bytes are drawn.
    """
    roles = node.byte_roles()
    for start in range(0, min(len(roles), MAP_MAX), 2 * MAP_WIDTH):
        line = Text(f"{start:>6} ", styles.FAINT)
        upper, lower = roles[start : start + MAP_WIDTH], roles[start + MAP_WIDTH : start + 2 * MAP_WIDTH]
        for at, role in enumerate(upper):
            below = f" on {styles.ROLE_COLOURS[lower[at]]}" if at < len(lower) else ""
            line.append("▀", f"{styles.ROLE_COLOURS[role]}{below}")
        yield line
    if len(roles) > MAP_MAX:
        yield Text(f"       … {styles.format_size(len(roles) - MAP_MAX)} more", styles.GREY)
    yield Text()
    used = dict.fromkeys(roles)
    yield from legends(roles, [role for role in styles.ROLE_COLOURS if role in used])


def legends(roles: list[str], used: list[str]) -> Iterator[Text]:
    """Return the legend of the map, three roles to a line."""
    for start in range(0, len(used), 3):
        line = Text(" " * 7)
        for role in used[start : start + 3]:
            share = roles.count(role)
            line.append("██ ", styles.ROLE_COLOURS[role])
            label = f"{styles.ROLE_LABELS[role]}, {styles.format_size(share)} ({share / len(roles):.0%})"
            line.append(label.ljust(32), styles.GREY)
        yield line


def draw_strips(parts: list[NamedElement], width: int, dead: bool) -> Iterator[Text]:
    """Return elements side by side, in as many strips as the width requires."""
    row: list[Cell] = []
    used = 1
    for part in parts:
        cell = Cell(part, dead)
        if row and used + cell.width + 1 > width:
            yield from draw_strip(row)
            row, used = [], 1
        row.append(cell)
        used += cell.width + 1
    if row:
        yield from draw_strip(row)


class Cell:
    """One element as four lines of equal width: name, value, bytes, offset."""

    def __init__(self, part: NamedElement, dead: bool) -> None:
        element = part.element
        self.style = styles.ROLE_COLOURS[node_parser.DEAD if dead else part.role]
        self.name = styles.truncate(part.name, VALUE_MAX)
        self.value = value_text(part)
        self.hex_bytes = [f"{byte:02x}" for byte in part.element.raw]
        self.head, self.body, self.trail = element.encoding_bytes, element.payload_bytes, element.trail_bytes
        self.offset = str(element.offset)
        self.hex_text = self._hexadecimal()
        self.width = max(
            len(self.name) + 2, len(self.value) + 2, len(self.hex_text) + 2, len(self.offset) + 2
        )

    def _hexadecimal(self) -> Text:
        """Return the bytes; of a long text the first ones and the trailing length."""
        text = Text()
        start, end = self.head, self.head + self.body
        skip = range(0)
        if len(self.hex_bytes) > HEX_MAX:
            skip = range(HEX_MAX - self.trail - 1, end)
        for at, byte in enumerate(self.hex_bytes):
            if at in skip:
                if at == skip.start:
                    text.append("… ", styles.GREY)
                continue
            style = f"bold {self.style}" if start <= at < end else "dim " + self.style
            text.append(byte, styles.ROLE_COLOURS[node_parser.TRAIL] if at >= end else style)
            text.append(" ")
        text.rstrip()
        return text


def value_text(part: NamedElement) -> str:
    """Return the value: text in quotes, a number without."""
    value = part.element.value
    if part.name == "flags" and isinstance(value, int):
        return f"{value}{' same' if value & node_parser.SAME_FIELDS else ''}{' gone' if value & 1 else ''}"
    if isinstance(value, int):
        return str(value)
    return styles.truncate(f'"{printable(value)}"', VALUE_MAX) if part.name != "end" else ""


def draw_strip(row: list[Cell]) -> Iterator[Text]:
    """Return the four lines of cells side by side, with borders."""
    yield _edge("╭┬╮", [(cell.name, cell.style, cell.width) for cell in row])
    value, data = Text("│", styles.FAINT), Text("│", styles.FAINT)
    for cell in row:
        value.append(f" {cell.value} ".ljust(cell.width), f"bold {cell.style}")
        value.append("│", styles.FAINT)
        data.append(" ")
        data.append_text(cell.hex_text)
        data.append(" " * (cell.width - len(cell.hex_text) - 1))
        data.append("│", styles.FAINT)
    yield Text("  ") + value
    yield Text("  ") + data
    yield _edge("╰┴╯", [(cell.offset, styles.GREY, cell.width) for cell in row])


def _edge(corners: str, words: list[tuple[str, str, int]]) -> Text:
    text = Text(f"  {corners[0]}", styles.FAINT)
    for number, (word, style, width) in enumerate(words):
        text.append(f" {word} ", style)
        text.append("─" * (width - len(word) - 2), styles.FAINT)
        text.append(corners[2] if number == len(words) - 1 else corners[1], styles.FAINT)
    return text
