"""A run in a Ray job leaves nothing in the folder that is deleted with the job."""

import pytest
from typer.testing import CliRunner

from embedmill.testing.rehearsal import Rehearsal
from pipelines.cli import app


@pytest.fixture
def job_folder(tmp_path, monkeypatch):
    """Where Ray unpacks what a job brings with it; it is where the job's command begins."""
    folder = tmp_path / "runtime_resources" / "working_dir_files" / "_ray_pkg_0123456789abcdef"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def rehearsal(tmp_path):
    rehearsal = Rehearsal(tmp_path / "shared")
    rehearsal.folder.mkdir()
    rehearsal.write({"a": "apples", "b": "plums"})
    return rehearsal


def embedmill(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.mark.parametrize(
    ("key", "what"), [("workspace", "the workspace"), ("store.path", "the store")]
)
def test_a_relative_path_in_a_ray_job_is_refused_before_any_work(job_folder, rehearsal, key, what):
    rehearsal.settings()
    done = embedmill("ingest", rehearsal.config, "--local", "--set", f"{key}=.embedmill")
    assert done.exit_code == 4
    assert f"error: {what} .embedmill lies in the folder that this Ray job" in done.stderr
    assert f"next: let {key} name a folder" in done.stderr
    assert list(job_folder.iterdir()) == []
    assert not list(rehearsal.folder.rglob("report.json"))


def test_what_is_shared_may_be_filled_from_a_job_but_not_exported_into_its_folder(
    job_folder, rehearsal
):
    rehearsal.settings()
    assert embedmill("ingest", rehearsal.config, "--local").exit_code == 0
    done = embedmill("export", rehearsal.config, "--to", "out")
    assert done.exit_code == 4
    assert "error: the export out lies in the folder that this Ray job" in done.stderr
    assert list(job_folder.iterdir()) == []
