import pytest


@pytest.fixture(scope="session", autouse=True)
def cache_of_the_tests(tmp_path_factory):
    """What is made once for a machine is made once for a session of tests; nobody's home is used.

    Inherited by processes that tests start.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EMBEDMILL_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
