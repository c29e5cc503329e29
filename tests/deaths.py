"""At which of its effects a process dies, where a test lets one die at any of them.

Right before an effect is right after the one before it: in between, a process only reads. So every
test dies after each effect; before one, at the first of all and at some others.
"""

import os

MOMENTS = ("before", "after")
# EMBEDMILL_TEST_MOMENTS=all dies before each effect, too.
EVERY_MOMENT = os.environ.get("EMBEDMILL_TEST_MOMENTS") == "all"
_STEP = 9


def dying_at(effects, moment):
    """Numbers of the effects to die at, from 1."""
    few = moment == "before" and not EVERY_MOMENT
    return range(1, len(effects) + 1, _STEP if few else 1)
