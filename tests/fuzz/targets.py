"""Everything that reads bytes from outside, by name."""

from fuzz import targets_arrow, targets_files, targets_protocol, targets_words
from fuzz.driver import Target

ROOMS = (targets_protocol, targets_files, targets_words, targets_arrow)
TARGETS: dict[str, Target] = {target.name: target for room in ROOMS for target in room.TARGETS}
