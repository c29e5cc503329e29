import gc

from embedmill.garbage import collect_rarely


def test_new_objects_are_looked_at_rarely_and_what_is_there_never_again():
    before = gc.get_threshold()
    try:
        collect_rarely()
        assert gc.isenabled()
        assert gc.get_threshold()[0] > before[0]
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)
