"""Reading beside a compaction that deletes what it has replaced."""

import pytest

from embedmill.errors import DamagedFileError
from embedmill.rereading import undisturbed


class Disturbed:
    def __init__(self, times):
        self.times, self.looks = times, 0

    def __call__(self):
        self.looks += 1
        if self.looks <= self.times:
            raise DamagedFileError(f"a file is missing at look {self.looks}")
        return "all of it"


def test_what_a_compaction_took_away_is_looked_for_where_it_is_now():
    assert undisturbed(Disturbed(0)) == "all of it"
    assert undisturbed(Disturbed(2)) == "all of it"


def test_a_file_that_is_missing_every_time_is_damage():
    look = Disturbed(99)
    with pytest.raises(DamagedFileError, match="at look 3"):
        undisturbed(look)
    assert look.looks == 3
