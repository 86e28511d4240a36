"""Merge the orders of the fields of several entries into one order of columns.

    a   c        entries
    a b c d
      b   d
    a b c d      the order that has the fields of each entry in their own order

If there is none, because two entries have two fields in opposite orders, the first entry counts.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from itertools import pairwise


def merge_orders(orders: Iterable[Sequence[bytes]]) -> list[bytes]:
    """Return all names in an order that agrees with each of the orders, as far as possible.

    Args:
        orders: Names without repetition, most important first.
    """
    distinct = dict.fromkeys(tuple(order) for order in orders)
    position = {name: at for at, name in enumerate(dict.fromkeys(name for o in distinct for name in o))}
    followers: dict[bytes, set[bytes]] = {name: set() for name in position}
    open_before = dict.fromkeys(position, 0)  # how many names must come first and have not come yet
    for order in distinct:
        for name, following in pairwise(order):
            if following not in followers[name]:
                followers[name].add(following)
                open_before[following] += 1
    names = list(position)
    ready = [at for at, name in enumerate(names) if not open_before[name]]
    merged: dict[bytes, None] = {}
    oldest = 0
    while len(merged) < len(names):
        while not ready:  # the orders contradict each other
            if names[oldest] not in merged:
                ready.append(oldest)
            oldest += 1
        name = names[heapq.heappop(ready)]
        if name in merged:
            continue
        merged[name] = None
        for following in followers[name]:
            open_before[following] -= 1
            if not open_before[following]:
                heapq.heappush(ready, position[following])
    return list(merged)
