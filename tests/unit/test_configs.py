"""Every configuration that is shipped loads, and says only what is true."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from embedmill.settings_file import effective_settings, load_settings, missing_secrets

ROOT = Path(__file__).parents[2]
CONFIGS = sorted((ROOT / "configs").glob("*.yaml"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_shipped_configuration_loads_and_says_which_secrets_to_export(path, monkeypatch):
    said = re.findall(r"export ([A-Z_]+)=", path.read_text())
    for name in said:
        monkeypatch.delenv(name, raising=False)
    assert missing_secrets(load_settings(path)) == said


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_the_effective_settings_read_back_as_the_same(path, tmp_path):
    settings = load_settings(path)
    copy = tmp_path / "copy.yaml"
    copy.write_text(effective_settings(settings))
    assert load_settings(copy) == settings


def test_the_table_configuration_spells_every_option_out(tmp_path):
    settings = load_settings(ROOT / "configs" / "table_hashing.yaml")
    text = (ROOT / "configs" / "table_hashing.yaml").read_text()
    for section in ("workspace", "source", "chunker", "embedder", "store", "run"):
        for key in type(getattr(settings, section)).model_fields:
            assert f"\n  {key}:" in text, f"{section}.{key}"
    for key in type(settings).model_fields:
        assert f"\n{key}:" in text, key


def test_the_configuration_document_is_up_to_date():
    script = ROOT / "scripts" / "generate_configuration_docs.py"
    done = subprocess.run(
        [sys.executable, str(script), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_quickstart_says_where_its_script_renders_the_documents():
    settings = load_settings(ROOT / "configs" / "quickstart.yaml")
    script = (ROOT / "scripts" / "quickstart").read_text()
    assert f"docs={settings.source.path.removeprefix('./')}\n" in script
    assert "config=configs/quickstart.yaml\n" in script
