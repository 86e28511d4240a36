"""Names and values that try to control the terminal they are printed on."""

from __future__ import annotations

import re
import unicodedata

NAME = "or\x1b]0;owned\x07\x1b[2J\x9b31m\x7f\u202e\u2066\u200b\u2028[red]:smile:[/]\n\r\tders"
VALUE = b"\x00pear\xff\xfe" + NAME.encode()  # not UTF-8
RICH = re.compile(r"\x1b\[[0-9;]*m|\x1b\[\?25[lh]|\x1b\[2K|\x1b\[1?A|\r")  # what rich itself writes


def unsafe(output: str, *, terminal: bool = False) -> set[str]:
    """Return the characters of an output that a terminal would execute.

    Args:
        output: What a command printed.
        terminal: It was printed on a terminal, so the sequences that rich writes are left out first.
    """
    if terminal:
        output = RICH.sub("", output)
    return {
        letter
        for letter in output.replace("\n", "")
        if unicodedata.category(letter) in {"Cc", "Cf", "Cs", "Zl", "Zp"}
    }
