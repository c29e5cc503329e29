"""The documents speak of what is there."""

import re
from functools import cache
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipelines.cli import app

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([ROOT / "README.md", *ROOT.glob("docs/*.md")])
ROOTS = ("embedmill", "actors", "pipelines", "configs", "scripts", "tests", "docs")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_path_that_a_document_names_exists(document):
    text = document.read_text()
    named = set(re.findall(rf"\b(?:{'|'.join(ROOTS)})/[A-Za-z0-9_./-]*[A-Za-z0-9_/]", text))
    missing = {name for name in named if not (ROOT / name).exists()}
    assert missing == set()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_of_a_document_leads_somewhere(document):
    links = re.findall(r"\]\(([^)#]+)\)", document.read_text())
    local = [link for link in links if "://" not in link]
    assert [link for link in local if not (document.parent / link).exists()] == []


@cache
def is_known(*command):
    return CliRunner().invoke(app, [*command, "--help"]).exit_code == 0


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_command_of_a_document_is_known_to_the_command_line(document):
    text = document.read_text()
    blocks = "\n".join(re.findall(r"^```.*?^```", text, flags=re.MULTILINE | re.DOTALL))
    spoken = re.findall(r"`embedmill ([a-z-]+(?: [a-z-]+)?)", text)
    typed = re.findall(r"^embedmill ([a-z-]+(?: [a-z-]+)?)", blocks, flags=re.MULTILINE)
    for words in [*spoken, *typed]:
        first, _, second = words.partition(" ")
        group = first in {"dlq", "jobs"} and second
        assert is_known(first, *([second] if group else [])), words


def test_every_exit_status_of_the_command_line_has_a_line_of_its_own():
    # However it was wrapped.
    told = " ".join(CliRunner().invoke(app, ["--help"]).output.split())
    statuses = set(re.findall(r"\b(\d+) [a-z]", told.split("Exit status:")[1].split("Options")[0]))
    page = (ROOT / "docs/operations.md").read_text().split("## Where")[0]
    assert statuses == set(re.findall(r"^\| (\d+) \|", page, flags=re.MULTILINE))


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) < 150
