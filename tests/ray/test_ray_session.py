"""What a Ray of our own leaves on the disk, and who takes it away."""

import fcntl
import os

import pytest

from actors.ray_session import RaySession, remove_abandoned_folders
from embedmill.errors import RefusedError


@pytest.fixture
def left(tmp_path):
    """Makes a folder as a run leaves it when it is killed."""

    def make(name, *, locked=True):
        folder = tmp_path / name
        (folder / "session" / "logs").mkdir(parents=True)
        if locked:
            (folder / "in-use").touch()
        return folder

    return make


def test_what_a_killed_run_left_is_removed_by_the_next(tmp_path, left):
    folder = left("embedmill-ray-abc")
    remove_abandoned_folders(tmp_path)
    assert not folder.exists()


def test_the_folder_of_a_run_that_goes_on_stays(tmp_path, left):
    folder = left("embedmill-ray-abc")
    held = os.open(folder / "in-use", os.O_RDWR)
    fcntl.flock(held, fcntl.LOCK_EX)
    remove_abandoned_folders(tmp_path)
    os.close(held)
    assert folder.exists()


def test_folders_of_others_stay(tmp_path, left):
    others = [left("embedmill-ray-not-ours", locked=False), left("ray"), left("embedmill-rays")]
    remove_abandoned_folders(tmp_path)
    assert all(folder.exists() for folder in others)


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("127.0.0.1:1", "no Ray cluster answers at 127.0.0.1:1"),
        ("no-such-host.invalid:6379", "no Ray cluster answers at no-such-host.invalid"),
        ("ray://127.0.0.1:10001", "the address of a Ray client"),
    ],
)
def test_an_address_where_no_cluster_can_be_is_refused_at_once(address, reason):
    with pytest.raises(RefusedError, match=reason):
        RaySession(address=address)
