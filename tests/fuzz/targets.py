"""Everything that reads bytes from outside, by name."""

import targets_arrow
import targets_files
import targets_protocol
import targets_words
from driver import Target

ROOMS = (targets_protocol, targets_files, targets_words, targets_arrow)
TARGETS: dict[str, Target] = {target.name: target for room in ROOMS for target in room.TARGETS}
