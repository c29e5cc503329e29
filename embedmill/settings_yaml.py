"""The YAML of settings files: a small, unsurprising part of the language, with line numbers.

``yes``, ``no``, ``1:30``, ``2024-01-01`` and ``007`` are text here; only ``true``, ``false``,
``null`` and decimal numbers are more. Tags and merge keys are refused, and so is a key that is
given twice (the usual loader silently takes the last).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import yaml

Path = tuple[str, ...]

_TAG = "tag:yaml.org,2002:"
_RESOLVERS = (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", "~nN\0"),
    ("int", r"[-+]?(?:0|[1-9][0-9]*(?:_[0-9]+)*)", "-+0123456789"),
    (
        "float",
        r"[-+]?(?:[0-9]+(?:_[0-9]+)*\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+",
        "-+0123456789.",
    ),
)


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 (as the base declares it)


class _Dumper(yaml.SafeDumper):
    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 (as the base declares it)


for _name, _pattern, _first in _RESOLVERS:
    for _class in (_Loader, _Dumper):
        _class.add_implicit_resolver(
            _TAG + _name,
            re.compile(f"^(?:{_pattern})$"),
            ["" if letter == "\0" else letter for letter in _first],
        )


def _text_node(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    # PyYAML writes U+0085 in single quotes and then reads another character; "\n" is also easier
    # on the eyes than a text in quotes over three lines.
    breaks = not set(text).isdisjoint("\n\r\x85\u2028\u2029")
    return dumper.represent_scalar(_TAG + "str", text, style='"' if breaks else None)


_Dumper.add_representer(str, _text_node)


@dataclass(slots=True)
class YamlText:
    """What a text holds.

    Attributes:
        value: nested dicts, lists and scalars; None for an empty text.
        lines: of every key, from 1, by path.
        problems: (path, line, what is wrong), in the text's order.
    """

    value: object = None
    lines: dict[Path, int] = field(default_factory=dict)
    problems: list[tuple[Path, int, str]] = field(default_factory=list)


def parse_yaml(text: bytes | str) -> YamlText:
    """Read ``text`` (bytes: UTF-8, or UTF-16 with a byte order mark); never raises for its content.

    A text that is no YAML has one problem and the value None.
    """
    result = YamlText()
    try:
        node = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        result.problems.append(((), *_marked(error)))
    except yaml.reader.ReaderError as error:
        where = f"{'byte' if isinstance(text, bytes) else 'character'} {error.position}"
        result.problems.append(((), 0, f"not a YAML text: {error.reason} at {where}"))
    except RecursionError:
        result.problems.append(((), 0, "nested too deeply"))
    else:
        if node is not None:
            result.value = _value(node, (), result, ())
    return result


def _marked(error: yaml.MarkedYAMLError) -> tuple[int, str]:
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
    reason = ", ".join(part for part in (error.context, error.problem) if part)
    return line, f"not valid YAML at line {line}, column {column}: {reason}"


def _value(node: yaml.Node, path: Path, result: YamlText, around: tuple[yaml.Node, ...]) -> object:
    line = node.start_mark.line + 1
    if any(node is outer for outer in around):
        result.problems.append((path, line, "refers to itself"))
        return None
    if isinstance(node, yaml.MappingNode) and node.tag == _TAG + "map":
        return _mapping(node, path, result, (*around, node))
    if isinstance(node, yaml.SequenceNode) and node.tag == _TAG + "seq":
        items = enumerate(node.value)
        return [_value(item, (*path, str(i)), result, (*around, node)) for i, item in items]
    if isinstance(node, yaml.ScalarNode):
        try:
            return _scalar(node)
        except ValueError:
            pass
    tag = node.tag.replace(_TAG, "!!")
    result.problems.append((path, line, f"the tag {tag} cannot be used here"))
    return None


def _scalar(node: yaml.ScalarNode) -> object:
    text: str = node.value
    match node.tag.removeprefix(_TAG):
        case "str":
            return text
        case "null":
            return None
        case "bool":
            return text.lower() == "true"
        case "int":
            return int(text)
        case "float":
            return float(text)
    raise ValueError(node.tag)


def _mapping(
    node: yaml.MappingNode, path: Path, result: YamlText, around: tuple[yaml.Node, ...]
) -> dict[str, object]:
    found: dict[str, object] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            result.problems.append((path, line, "has a key that is a list or a section"))
            continue
        key: str = key_node.value
        here = (*path, key)
        if key in found:
            first = result.lines[here]
            result.problems.append((here, line, f"given twice, first on line {first}"))
            continue
        result.lines[here] = line
        found[key] = _value(value_node, here, result, around)
    return found


def scalar_or_flow(text: str) -> YamlText:
    """Read a value as typed on a command line.

    What begins with one of ``[ { " '`` is YAML; anything else is one scalar as it stands, so that
    ``*.md`` and ``query: `` need no quotes. Nothing at all is the empty text.
    """
    if text.lstrip()[:1] in ("[", "{", '"', "'"):
        return parse_yaml(text)
    if not text or text != text.strip():
        return YamlText(text)
    forms = _Loader.yaml_implicit_resolvers.get(text[0], [])
    tag = next((tag for tag, form in forms if form.match(text)), _TAG + "str")
    return YamlText(_scalar(yaml.ScalarNode(tag, text)))


def dump_yaml(value: object) -> str:
    """Write ``value`` so that :func:`parse_yaml` reads the same."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
