"""Rules of the house that no linter knows."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted(
    path
    for package in ("embedmill", "actors", "pipelines")
    for path in (ROOT / package).rglob("*.py")
)
TEXTS = {str(path.relative_to(ROOT)): path.read_text() for path in MODULES}
SCRIPTS = sorted(path for path in (ROOT / "scripts").iterdir() if path.is_file())


@pytest.fixture(scope="module")
def trees():
    """All modules, parsed."""
    return {name: ast.parse(text) for name, text in TEXTS.items()}


@pytest.fixture(scope="module")
def nodes(trees):
    """Every node of every module, beside the module's name."""
    return [(name, node) for name, tree in trees.items() for node in ast.walk(tree)]


def test_nothing_rests_on_the_builtin_hash_or_on_invented_ids(nodes):
    found = []
    for module, node in nodes:
        name = getattr(node, "id", getattr(node, "attr", getattr(node, "name", "")))
        is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        if name == "uuid4" or (is_call and node.func.id == "hash"):
            found.append(f"{module}:{node.lineno}")
    assert found == []


def test_a_module_has_at_most_400_lines():
    lengths = {name: len(text.splitlines()) for name, text in TEXTS.items()}
    assert {name: length for name, length in lengths.items() if length > 400} == {}


def test_a_function_has_at_most_40_lines_without_its_docstring(nodes):
    too_long = {
        f"{module}:{node.name}": length_of(node)
        for module, node in nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and length_of(node) > 40
    }
    assert too_long == {}


def length_of(function):
    lines = function.end_lineno - function.lineno + 1
    if ast.get_docstring(function) is not None:
        text = function.body[0]
        lines -= text.end_lineno - text.lineno + 1
    return lines


def test_everything_is_swallowed_only_with_a_reason_beside_it(nodes):
    found = []
    for module, node in nodes:
        if not isinstance(node, ast.ExceptHandler) or isinstance(node.body[-1], ast.Raise):
            continue
        line = TEXTS[module].splitlines()[node.lineno - 1]
        if catches_all(node.type) and not re.search(r"# noqa: BLE001,? *(\S.*)", line):
            found.append(f"{module}:{node.lineno}")
    assert found == []


def catches_all(caught):
    parts = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return any(
        part is None or (isinstance(part, ast.Name) and part.id in ("Exception", "BaseException"))
        for part in parts
    )


def test_every_exemption_names_its_rule_and_its_reason():
    reasoned = re.compile(r"# noqa: [A-Z]+[0-9]+(, ?[A-Z]+[0-9]+)*,? *[^\s,]")
    assert [
        f"{module}:{number}"
        for module, text in TEXTS.items()
        for number, line in enumerate(text.splitlines(), start=1)
        if "# noqa" in line and not reasoned.search(line)
    ] == []


COMMANDS = (
    "ingest|compact|search|status|reembed|publish|rollback|retire|prune|why|audit|evaluate|contract"
    "|check-query|copy|export|versions|dlq|jobs"
)


def test_a_command_that_somebody_is_told_to_type_names_the_settings(trees):
    nameless = re.compile(rf"\bembedmill (?:{COMMANDS})\b(?! (?:[\w.-]+ )*SETTINGS\b)")
    assert [
        (module, text)
        for module, tree in trees.items()
        for text in texts_of_messages(tree)
        if nameless.search(text)
    ] == []


def texts_of_messages(node):
    """Texts but those of pages and of ``--help``, with a letter for each part that is filled in."""
    if isinstance(node, ast.JoinedStr):
        yield "".join(part.value if isinstance(part, ast.Constant) else "X" for part in node.values)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif not (isinstance(node, ast.keyword) and node.arg in ("help", "description", "epilog")):
        for child in ast.iter_child_nodes(node):
            if not (isinstance(node, ast.Expr) and isinstance(child, ast.Constant)):
                yield from texts_of_messages(child)


def test_nothing_is_called_utils_or_the_like():
    empty_words = {"utils", "util", "helpers", "common", "base", "core", "misc", "manager"}
    assert [name for name in TEXTS if empty_words & set(re.split(r"[/_.]", name))] == []


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_script_can_be_run(path):
    assert os.access(path, os.X_OK)
    assert path.read_text().startswith("#!/usr/bin/env ")


@pytest.mark.parametrize("path", [p for p in SCRIPTS if not p.suffix], ids=lambda path: path.name)
def test_a_shell_script_stops_at_the_first_failure(path):
    text = path.read_text()
    assert "\nset -euo pipefail\n" in text
    done = subprocess.run(["bash", "-n", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_loading_settings_imports_nothing_heavy():
    code = (
        "import sys, embedmill.settings_file\n"
        "heavy = ('torch', 'ray', 'qdrant_edge', 'pyarrow', 'numpy')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout == "[]\n"


def test_constraints_name_versions_and_no_places():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[0-9][A-Za-z0-9.]*", pin) for pin in pins)
    assert "torch==2.13.0" in pins
