"""Schedules that are shipped: they parse, refer to what there is, and the script decides well."""

import ast
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from kubernetes_fields import OBJECTS, problems
from typer.testing import CliRunner

from embedmill.testing.rehearsal import Rehearsal
from pipelines.cli import app

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "configs" / "schedules"
FIELD = r"(\*|\d+(-\d+)?(,\d+(-\d+)?)*)(/\d+)?"
CRON = re.compile(rf"({FIELD} ){{4}}{FIELD}")


def sync(tmp_path, status, *arguments):
    """Run the script with a program that ends with a status; its status, and what it was given."""
    program, said = tmp_path / "embedmill", tmp_path / "arguments"
    program.write_text(f'#!/bin/sh\necho "$@" > {said}\nexit {status}\n')
    program.chmod(0o755)
    done = subprocess.run(
        [ROOT / "scripts" / "sync", *arguments],
        env={"EMBEDMILL": str(program), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done, said.read_text().split() if said.exists() else None


@pytest.mark.parametrize(
    ("status", "expected"),
    [(0, 0), (6, 0), (8, 0), (2, 2), (3, 3), (4, 4), (5, 5), (9, 9), (75, 75)],
)
def test_a_sync_fails_only_where_a_person_must_do_something(tmp_path, status, expected):
    done, arguments = sync(tmp_path, status, "index.yaml", "--local")
    assert done.returncode == expected
    assert arguments == ["ingest", "index.yaml", "--local", "--no-wait"]
    assert bool(done.stderr) == (status in (6, 8))


def test_a_sync_without_settings_says_how_it_is_used(tmp_path):
    done, arguments = sync(tmp_path, 0)
    assert (done.returncode, arguments) == (2, None)
    assert "scripts/sync SETTINGS.yaml" in done.stdout


def cron_lines():
    lines = (FOLDER / "crontab").read_text().splitlines()
    return [line for line in lines if line and not re.match(r"#|[A-Z]+=", line)]


@pytest.mark.parametrize("line", cron_lines())
def test_a_line_of_the_crontab_has_times_and_commands_that_exist(line, tmp_path):
    times, _, command = line.partition("  ")
    assert CRON.fullmatch(times), times
    # cron reads % as the end of the line.
    assert "%" not in command
    program, *words = shlex.split(command.partition(" && ")[2].partition(" >> ")[0])
    if program == "scripts/sync":
        assert words == ["$SETTINGS"]
        return
    assert program == ".venv/bin/embedmill"
    rehearsal = Rehearsal(tmp_path)
    rehearsal.settings()
    done = CliRunner().invoke(app, [w.replace("$SETTINGS", str(rehearsal.config)) for w in words])
    # There is no index yet, so that either ends without 0; wrong usage would be 2.
    assert done.exit_code in {4, 7}, done.output


@pytest.mark.parametrize("line", cron_lines())
@pytest.mark.parametrize("status", [0, 3])
def test_cron_mails_the_end_of_the_log_and_only_when_a_command_fails(tmp_path, line, status):
    """Whatever a command prints is mailed: a sync that goes well prints progress for hours."""
    for name in ("scripts/sync", ".venv/bin/embedmill"):
        program = tmp_path / name
        program.parent.mkdir(parents=True)
        program.write_text(f'#!/bin/sh\necho "$@"\necho progress >&2\nexit {status}\n')
        program.chmod(0o755)
    log = tmp_path / "log"
    done = subprocess.run(
        ["bash", "-c", line.partition("  ")[2].replace("/srv/embedmill", str(tmp_path))],
        env={"LOG": str(log), "SETTINGS": "/etc/index.yaml", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    logged = log.read_text()
    assert "/etc/index.yaml" in logged
    assert "progress" in logged
    assert done.stdout + done.stderr == (logged if status else "")


def test_the_crontab_defines_what_its_lines_refer_to():
    text = (FOLDER / "crontab").read_text()
    defined = set(re.findall(r"^([A-Z]+)=/", text, re.MULTILINE))
    assert set(re.findall(r"\$([A-Z]+)", "".join(cron_lines()))) <= defined


@pytest.mark.parametrize("name", ["embedmill-sync.service", "embedmill-sync.timer"])
def test_a_systemd_unit_has_known_sections_and_one_value_a_line(name):
    known = {"Unit", "Service", "Timer", "Install"}
    lines = (FOLDER / name).read_text().splitlines()
    assert {line[1:-1] for line in lines if line.startswith("[")} <= known
    values = [line for line in lines if line and not line.startswith(("#", "["))]
    assert all(re.fullmatch(r"[A-Z][A-Za-z]+=\S.*", line) for line in values)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_knows_every_setting_of_the_units(tmp_path):
    for name in ("embedmill-sync.service", "embedmill-sync.timer"):
        text = (FOLDER / name).read_text().replace("/srv/embedmill/scripts/sync", "/bin/true")
        (tmp_path / name).write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", tmp_path / "embedmill-sync.timer"],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    said = [line for line in done.stderr.splitlines() if "embedmill-sync" in line]
    assert [line for line in said if "Unknown" in line or "Failed to parse" in line] == []


@pytest.fixture
def manifests():
    found = list(yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text()))
    return {document["kind"]: document for document in found}


# What the API server insists on, by kind: path and type.
REQUIRED = {
    "CronJob": {
        "spec.schedule": str,
        "spec.jobTemplate.spec.template.spec.restartPolicy": str,
        "spec.jobTemplate.spec.template.spec.containers": list,
    },
    "Role": {"rules": list},
    "RoleBinding": {"roleRef.name": str, "subjects": list},
    "ConfigMap": {"data": dict},
    "ServiceAccount": {"metadata.name": str},
}
RAY_JOB = {
    "metadata.generateName": str,
    "spec.entrypoint": str,
    "spec.shutdownAfterJobFinishes": bool,
    "spec.ttlSecondsAfterFinished": int,
    "spec.backoffLimit": int,
    "spec.activeDeadlineSeconds": int,
    "spec.rayClusterSpec.headGroupSpec.rayStartParams": dict,
    "spec.rayClusterSpec.headGroupSpec.template.spec.containers": list,
    "spec.rayClusterSpec.workerGroupSpecs": list,
}


def at(document, path):
    for key in path.split("."):
        document = document[key]
    return document


def test_the_kubernetes_objects_have_what_the_server_insists_on(manifests):
    assert set(manifests) == set(REQUIRED)
    for kind, wanted in REQUIRED.items():
        assert {"apiVersion", "kind", "metadata"} <= set(manifests[kind])
        for path, of in wanted.items():
            assert isinstance(at(manifests[kind], path), of), (kind, path)
    cron = manifests["CronJob"]["spec"]
    assert CRON.fullmatch(cron["schedule"])
    assert cron["concurrencyPolicy"] in {"Allow", "Forbid", "Replace"}


def test_the_kubernetes_objects_have_no_field_that_the_server_would_drop(manifests):
    for kind, document in manifests.items():
        assert problems(document, OBJECTS[kind]) == []
    [text] = manifests["ConfigMap"]["data"].values()
    assert problems(yaml.safe_load(text), OBJECTS["RayJob"]) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("  entrypoint:", "  entryPoint:"), ".spec.entryPoint is unknown"),
        (("backoffLimit: 0", "backoffLimit: '0'"), ".spec.backoffLimit is '0'"),
        (("backoffLimit: 0", "backoffLimit: false"), ".spec.backoffLimit is False"),
        (('num-cpus: "0"', "num-cpus: 0"), ".rayStartParams.num-cpus is 0"),
        (("memory: 4Gi}", "memory: 4GB}"), ".requests.memory is '4GB'"),
        (("replicas: 2", "replicas: [2]"), ".workerGroupSpecs[0].replicas is [2]"),
    ],
)
def test_a_slip_of_the_pen_in_the_ray_job_is_found(manifests, change, said):
    [text] = manifests["ConfigMap"]["data"].values()
    assert change[0] in text
    found = problems(yaml.safe_load(text.replace(*change, 1)), OBJECTS["RayJob"])
    assert found
    assert found[0].endswith(said)


def test_the_kubernetes_objects_refer_to_each_other(manifests):
    names = {kind: document["metadata"]["name"] for kind, document in manifests.items()}
    pod = at(manifests["CronJob"], "spec.jobTemplate.spec.template.spec")
    assert pod["serviceAccountName"] == names["ServiceAccount"]
    assert pod["volumes"][0]["configMap"]["name"] == names["ConfigMap"]
    folder = pod["containers"][0]["volumeMounts"][0]["mountPath"]
    [file] = manifests["ConfigMap"]["data"]
    assert pod["containers"][0]["command"][-1] == f"{folder}/{file}"
    binding = manifests["RoleBinding"]
    assert binding["roleRef"]["name"] == names["Role"]
    assert binding["subjects"][0]["name"] == names["ServiceAccount"]
    assert "create" in manifests["Role"]["rules"][0]["verbs"]


def test_the_ray_job_is_one_and_its_pods_mount_what_they_read(manifests):
    [text] = manifests["ConfigMap"]["data"].values()
    job = yaml.safe_load(text)
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    for path, of in RAY_JOB.items():
        assert isinstance(at(job, path), of), path
    cluster = job["spec"]["rayClusterSpec"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
        pod = group["template"]["spec"]
        mounted = {mount["name"] for mount in pod["containers"][0]["volumeMounts"]}
        assert mounted == {volume["name"] for volume in pod["volumes"]}
        assert re.fullmatch(r"\d+(Mi|Gi)", pod["containers"][0]["resources"]["limits"]["memory"])
    workers = cluster["workerGroupSpecs"][0]
    assert workers["minReplicas"] <= workers["replicas"] <= workers["maxReplicas"]
    script, settings, *_ = job["spec"]["entrypoint"].split()
    assert (ROOT / "scripts" / Path(script).name).exists()
    assert settings.startswith("/etc/embedmill/")


def test_the_snippets_for_orchestrators_are_python():
    snippets = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs" / "scheduling.md").read_text(), re.DOTALL
    )
    assert len(snippets) == 3
    for snippet in snippets:
        tree = ast.parse(snippet)
        assert any(isinstance(node, ast.Import | ast.ImportFrom) for node in ast.walk(tree))
        assert "/srv/search/bin/sync" in snippet
