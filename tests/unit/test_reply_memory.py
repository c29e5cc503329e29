"""Memory that replies share one after the other: sizes, and nothing of an earlier reply."""

import pytest

from embedmill.embedders.reply_memory import ReplyMemory, filled


@pytest.mark.parametrize("expected", [0, 3, 9, 1000], ids=["unknown", "less", "right", "more"])
def test_parts_stand_one_behind_the_other(expected):
    memory, size = filled(bytearray(4), [b"one", b"", b"two", b"six"], expected)
    assert bytes(memory[:size]) == b"onetwosix"


def test_a_shorter_reply_ends_where_it_ends():
    memory, _ = filled(bytearray(4), [b"a long reply"])
    again, size = filled(memory, [b"short"])
    assert again is memory
    assert bytes(again[:size]) == b"short"


def test_memory_is_lent_to_one_at_a_time_and_used_again():
    memory = ReplyMemory(1)
    first, second = memory.lend(), memory.lend()
    assert first is not second
    memory.give_back(first)
    memory.give_back(second)
    assert memory.lend() is first
    assert memory.lend() is not second


def test_the_largest_replies_leave_no_memory_behind():
    memory = ReplyMemory(1)
    large = bytearray((1 << 24) + 1)
    memory.give_back(large)
    assert memory.lend() is not large
