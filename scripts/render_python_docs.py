#!/usr/bin/env python3
"""Render the documentation of this interpreter's standard library, one Markdown file per module.

A corpus that every machine has: real text, no download. The same interpreter gives the same bytes.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import inspect
import io
import os
import pkgutil
import re
import shutil
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

# Importing these prints, opens windows, changes the interpreter or tests it; or (the second line
# on) there is nothing to read in them, or they repeat another module's text under another name.
SKIPPED = {
    "antigravity", "this", "idlelib", "turtledemo", "turtle", "test", "lib2to3", "distutils",
    "rlcompleter", "ensurepip", "site", "encodings", "pydoc_data", "posixpath", "ntpath",
    "genericpath", "nturl2path", "sre_compile", "sre_constants", "sre_parse", "posix", "nt",
    "ctypes.macholib", "ctypes.util", "xml.etree.cElementTree", "opcode", "imp",
    "asyncore", "asynchat", "smtpd",
}  # fmt: skip
SKIPPED_LEAVES = {"__main__", "test", "tests"}

# Together they keep the corpus near 1.2 MB, about 2,000 chunks: a minute of embedding on two cores.
MODULE_CHARACTERS = 8_000
CLASS_CHARACTERS = 1_600
FUNCTION_CHARACTERS = 900
HEADING_CHARACTERS = 120

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def main() -> None:
    """Render into the folder that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="made new; must not exist or be empty")
    folder: Path = parser.parse_args().folder
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        sys.exit(f"{folder} exists already; delete it to render it again")
    partial = folder.with_name(f".{folder.name}.partial-{os.getpid()}")
    partial.mkdir(parents=True)
    try:
        files, size = render(partial)
        # In place in one step: whoever sees the folder sees all of it.
        partial.replace(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    print(f"{folder}: {files} files, {size:,} bytes")


def render(folder: Path) -> tuple[int, int]:
    """Write a file per module; return how many and their bytes."""
    files = size = 0
    for name in module_names():
        module = imported(name)
        text = page(name, module) if module else ""
        if text:
            files += 1
            size += (folder / f"{name}.md").write_bytes(text.encode("utf-8", "replace"))
    return files, size


def module_names() -> Iterator[str]:
    """Public modules of the standard library, packages before their modules, sorted."""
    for top in sorted(sys.stdlib_module_names):
        yield from _with_submodules(top)


def _with_submodules(name: str) -> Iterator[str]:
    leaf = name.rpartition(".")[2]
    if name in SKIPPED or leaf in SKIPPED_LEAVES or leaf.startswith("_"):
        return
    yield name
    module = imported(name)
    if name == "os":
        yield "os.path"
    for found in sorted(pkgutil.iter_modules(getattr(module, "__path__", ())), key=_name):
        yield from _with_submodules(f"{name}.{found.name}")


def _name(module: pkgutil.ModuleInfo) -> str:
    return module.name


def imported(name: str) -> ModuleType | None:
    """Import in silence; None where this platform or build lacks the module."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        try:
            return importlib.import_module(name)
        except ImportError:
            return None


def page(name: str, module: ModuleType) -> str:
    """The module as Markdown; empty when it says nothing about itself."""
    summary, about = _summary(_module_text(name, module))
    # "wsgiref -- a WSGI Reference Library" says its name twice in a heading.
    summary = re.sub(rf"^{re.escape(name)}(?: *(?:--|-|:) *|$)", "", summary)
    text = f"# {name}" + (f" — {summary}" if summary else "") + "\n"
    text += f"\n{_cut(about, MODULE_CHARACTERS // 2)}\n" if about else ""
    entries = 0
    for entry in _entries(name, module):
        if len(text) + len(entry) > MODULE_CHARACTERS:
            continue
        text += f"\n{entry}\n"
        entries += 1
    return _ADDRESS.sub("", text) if summary or entries else ""


def _summary(text: str) -> tuple[str, str]:
    """Split off the first sentence for the heading; the rest keeps what the heading cuts."""
    first, _, rest = text.partition("\n\n")
    sentence, dot, more = " ".join(first.split()).partition(". ")
    if len(sentence) > HEADING_CHARACTERS:
        return f"{_cut(sentence, HEADING_CHARACTERS)} ...", text
    return sentence.rstrip(".:"), text if dot and more else rest.strip()


def _module_text(name: str, module: ModuleType) -> str:
    """Return the longer of the module's own text and that of its twin in pure Python."""
    twin = imported(f"_py{name}") if f"_py{name}" in sys.stdlib_module_names else None
    return max(_doc(module), _doc(twin), key=len)


def _doc(thing: object) -> str:
    """Return the text of the thing itself, nothing inherited; no line of it is a heading."""
    text = getattr(thing, "__doc__", None)
    if not isinstance(text, str):
        return ""
    underlined = re.sub(r"^([=~-])\1{2,} *$", "", inspect.cleandoc(text), flags=re.MULTILINE)
    return re.sub(r"^(?=#)", r"\\", underlined, flags=re.MULTILINE).strip()


def _entries(name: str, module: ModuleType) -> Iterator[str]:
    for public, thing in _public(name, module):
        if inspect.isclass(thing):
            yield _class_text(f"{name}.{public}", thing)
        elif inspect.isroutine(thing) and _doc(thing):
            yield _function_text(f"{name}.{public}", thing)


def _public(name: str, module: ModuleType) -> Iterator[tuple[str, object]]:
    listed = getattr(module, "__all__", None)
    for public in dict.fromkeys(listed if listed is not None else vars(module)):
        thing = getattr(module, public, None)
        home = getattr(thing, "__module__", None)
        if listed is not None or (not public.startswith("_") and home in (name, f"_{name}")):
            yield public, thing


def _function_text(title: str, function: object) -> str:
    parts = (f"## {title}", _signature(title, function), _doc(function))
    return _cut("\n\n".join(part for part in parts if part), FUNCTION_CHARACTERS)


def _class_text(title: str, cls: type) -> str:
    own = _doc(cls) if "__doc__" in vars(cls) else ""
    parts = [f"## {title}", _signature(title, cls), own]
    for name, member in vars(cls).items():
        function = inspect.unwrap(getattr(member, "__func__", member))
        if name.startswith("_") or not inspect.isroutine(function):
            continue
        first = " ".join(_doc(function).partition("\n\n")[0].split())
        if first:
            parts.append(f"- `{name}`: {first}")
    return _cut("\n\n".join(part for part in parts if part), CLASS_CHARACTERS)


def _signature(title: str, thing: object) -> str:
    try:
        text = str(inspect.signature(thing))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        # Many built-in functions have none; their text begins with it.
        return ""
    return f"`{title.rpartition('.')[2]}{text}`" if len(text) < 400 else ""


def _cut(text: str, limit: int) -> str:
    """Cut at the last paragraph, else line, else word, under the limit."""
    if len(text) <= limit:
        return text
    ends = (text.rfind(border, 0, limit) for border in ("\n\n", "\n", " "))
    return text[: next((end for end in ends if end > 0), limit)].rstrip()


if __name__ == "__main__":
    main()
