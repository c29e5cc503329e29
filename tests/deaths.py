"""At which of its effects a process dies, where a test lets one die at any of them.

Right before an effect is right after the one before it: in between, a process only reads. So every
test dies after effects; before one, at the first of all and at some others.

Of effects of one kind on files of one kind, as on those of every segment and shard, the first, the
second and the last are enough: what the first finds or leaves is new, the last ends a stage.
"""

import os
import re
from collections import defaultdict

MOMENTS = ("before", "after")
# EMBEDMILL_TEST_MOMENTS=all dies after each effect and before it.
EVERY_MOMENT = os.environ.get("EMBEDMILL_TEST_MOMENTS") == "all"
_STEP = 9
_NUMBERS_AND_DIGESTS = re.compile(r"[0-9a-f]*\d[0-9a-f]*")


def dying_at(effects, moment):
    """Numbers of the effects to die at, from 1."""
    numbers = list(range(1, len(effects) + 1))
    if EVERY_MOMENT:
        return numbers
    if moment == "before":
        return numbers[::_STEP]
    alike = defaultdict(list)
    for number, effect in enumerate(effects, 1):
        alike[effect.kind, _NUMBERS_AND_DIGESTS.sub("#", effect.target)].append(number)
    return sorted({number for same in alike.values() for number in (*same[:2], same[-1])})
