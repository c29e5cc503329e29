import gzip
import os
import pickle
import socket
from io import BytesIO
from pathlib import Path
from urllib.parse import unquote_to_bytes

import pytest
from source_rows import ids, read

from embedmill.document import documents_of
from embedmill.errors import SourceError
from embedmill.settings import FilesSourceSettings
from embedmill.sources.files import FilesSource
from embedmill.sources.listing import SPLIT_FILES, open_binary, scan_folder


def source_of(folder, open_file=open_binary, scan=scan_folder, **settings):
    values = FilesSourceSettings(kind="files", path=str(folder), **settings)
    return FilesSource(values, open_file=open_file, scan_folder=scan)


def write(folder: Path, **files: bytes) -> None:
    for name, content in files.items():
        path = folder / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def test_a_document_is_a_file_under_its_relative_path(tmp_path):
    write(tmp_path, b_md=b"# B", guide__a_txt=b"text", empty_txt=b"")

    rows = read(source_of(tmp_path))

    assert [(row.doc_id, row.content, row.media_type) for row in rows] == [
        ("b.md", b"# B", "text/markdown"),
        ("empty.txt", b"", "text/plain"),
        ("guide/a.txt", b"text", "text/plain"),
    ]
    assert rows[2].metadata == '{"path":"guide/a.txt"}'
    assert rows[2].uri == "guide/a.txt"


def test_one_file_is_a_source_too_whatever_its_extension(tmp_path):
    write(tmp_path, notes_log=b"line", other_log=b"line")

    rows = read(source_of(tmp_path / "notes.log"))

    assert [(row.doc_id, row.media_type) for row in rows] == [("notes.log", "text/plain")]


@pytest.mark.parametrize(
    ("name", "media_type"),
    [
        ("a.rst", "text/x-rst"),
        ("a.py", "text/x-python"),
        ("a.HTM", "text/html"),
        ("a.html.gz", "text/html"),
        ("a.vtt", "text/vtt"),
        ("LICENSE", "text/plain"),
    ],
)
def test_the_extension_decides_the_media_type(tmp_path, name, media_type):
    (tmp_path / name).write_bytes(b"x")

    assert read(source_of(tmp_path, include=("*",)))[0].media_type == media_type


def test_names_that_addresses_would_mangle_stay_as_they_are(tmp_path):
    names = ["%# +.md", "100%.md", "a b.md", "a%20b.md", "a+b.md", "café.md", "q?x=1.md"]
    for name in names:
        (tmp_path / name).write_bytes(name.encode())

    rows = read(source_of(tmp_path))

    assert [row.doc_id for row in rows] == names
    assert [row.content.decode() for row in rows] == names


def test_a_name_that_is_not_utf8_has_an_id_that_leads_back_to_it(tmp_path):
    name = b"caf\xe9 100%.md"
    (tmp_path / os.fsdecode(name)).write_bytes(b"x")
    (tmp_path / "caf%E9 100%.md").write_bytes(b"y")

    rows = read(source_of(tmp_path))

    by_content = {row.content: row.doc_id for row in rows}
    assert by_content[b"y"] == "caf%E9 100%.md"
    assert unquote_to_bytes(by_content[b"x"].removeprefix("/")) == name


def test_patterns_choose_and_exclusions_win(tmp_path):
    write(tmp_path, a_md=b"", b_txt=b"", docs__c_md=b"", docs__old__d_md=b"", notes__e_md=b"")

    assert ids(source_of(tmp_path, include=("*.md",))) == ["a.md"]
    assert ids(source_of(tmp_path, include=("docs/**/*.md",))) == ["docs/c.md", "docs/old/d.md"]
    assert ids(source_of(tmp_path, include=("docs/",))) == ["docs/c.md", "docs/old/d.md"]
    assert ids(source_of(tmp_path, include=("[!a].*", "docs/?.md"))) == ["b.txt", "docs/c.md"]
    assert ids(source_of(tmp_path, include=("**/*.md",), exclude=("docs/old", "n*/**"))) == [
        "a.md",
        "docs/c.md",
    ]


def test_a_hidden_folder_is_read_only_when_a_pattern_names_it(tmp_path):
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "a.md").write_bytes(b"")
    write(tmp_path, b_md=b"")

    assert ids(source_of(tmp_path)) == ["b.md"]
    assert ids(source_of(tmp_path, include=(".venv/**",))) == [".venv/a.md"]


def test_documents_that_nothing_parses_are_not_left_out_in_silence(tmp_path, caplog):
    write(tmp_path, a_md=b"", b_pdf=b"", c__d_PDF=b"", e_docx=b"", f_png=b"", old__g_pdf=b"")

    assert ids(source_of(tmp_path, exclude=("old",))) == ["a.md"]
    assert caplog.messages == [
        "2 .pdf, 1 .docx left out: nothing here parses them; convert them to text, or set "
        "source.include to say what is read"
    ]
    # Who says what is read knows what is not.
    assert ids(source_of(tmp_path, include=("*.md",))) == ["a.md"]
    assert len(caplog.messages) == 1


def test_a_pattern_that_is_none_is_refused(tmp_path):
    with pytest.raises(SourceError, match=r"\[z-a\]"):
        source_of(tmp_path, include=("[z-a].md",)).splits()


def test_links_are_not_followed_and_broken_ones_do_no_harm(tmp_path):
    root = tmp_path / "root"
    write(tmp_path, root__a_md=b"a", outside__b_md=b"b")
    (root / "loop").symlink_to(".")
    (root / "dangling.md").symlink_to("missing.md")
    (root / "out").symlink_to("../outside")
    (root / "twin.md").symlink_to("a.md")

    assert ids(source_of(root)) == ["a.md"]


def test_followed_links_give_each_real_file_once_and_stay_inside(tmp_path):
    root = tmp_path / "root"
    write(tmp_path, root__z_md=b"z", root__data__blob=b"blob", outside__b_md=b"b")
    (root / "loop").symlink_to(".")
    (root / "data" / "up").symlink_to("..")
    (root / "dangling.md").symlink_to("missing.md")
    (root / "circle.md").symlink_to("circle.md")
    (root / "out").symlink_to("../outside")
    (root / "out.md").symlink_to("../outside/b.md")
    (root / "a.md").symlink_to("z.md")
    (root / "first.md").symlink_to("data/blob")
    (root / "second.md").symlink_to("data/blob")

    assert ids(source_of(root, follow_links=True)) == ["first.md", "z.md"]


def test_folders_that_link_to_each_other_end(tmp_path):
    write(tmp_path, one__a_md=b"a", two__b_md=b"b")
    (tmp_path / "one" / "link").symlink_to("../two")
    (tmp_path / "two" / "link").symlink_to("../one")

    assert ids(source_of(tmp_path, follow_links=True)) == ["one/a.md", "two/b.md"]


def test_a_root_that_is_a_link_is_followed(tmp_path):
    write(tmp_path, real__a_md=b"a")
    (tmp_path / "link").symlink_to("real")

    assert ids(source_of(tmp_path / "link")) == ["a.md"]


def test_pipes_and_sockets_are_left_out(tmp_path, monkeypatch):
    write(tmp_path, a_txt=b"a")
    os.mkfifo(tmp_path / "pipe.txt")
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket.txt")
        assert ids(source_of(tmp_path)) == ["a.txt"]


def test_a_pipe_alone_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe.txt")

    with pytest.raises(SourceError, match="neither a file nor a folder"):
        source_of(tmp_path / "pipe.txt").splits()


def test_an_unreadable_file_is_an_error_under_its_id_and_the_others_go_on(tmp_path):
    write(tmp_path, a_md=b"a", b_md=b"b")

    def refuse(path):
        if path.endswith("a.md"):
            raise PermissionError(13, "Permission denied", path)
        return open_binary(path)

    first, second = read(source_of(tmp_path, open_file=refuse))

    assert (first.doc_id, first.content, first.error_code) == ("a.md", None, "unreadable")
    assert "Permission denied" in first.error_message
    assert (second.doc_id, second.error_code) == ("b.md", None)


def test_a_folder_that_cannot_be_listed_stops_the_scan(tmp_path):
    write(tmp_path, a_md=b"a", secret__b_md=b"b")

    def refuse(path):
        if path.endswith("secret"):
            raise PermissionError(13, "Permission denied", path)
        return scan_folder(path)

    with pytest.raises(SourceError, match=r"secret.*Permission denied"):
        source_of(tmp_path, scan=refuse).splits()
    assert ids(source_of(tmp_path, scan=refuse, exclude=("secret/**",))) == ["a.md"]


def test_a_missing_path_is_named(tmp_path):
    with pytest.raises(SourceError, match="nowhere") as raised:
        source_of(tmp_path / "nowhere").splits()
    assert "source.path" in raised.value.hint


def test_patterns_that_match_nothing_are_named(tmp_path):
    write(tmp_path, a_pdf=b"%PDF")

    with pytest.raises(SourceError, match=r"\*\*/\*\.md") as raised:
        source_of(tmp_path).splits()
    assert "include" in raised.value.hint


@pytest.mark.parametrize("replaced_by_folder", [False, True])
def test_a_file_that_is_gone_when_it_is_read_fails_the_split(tmp_path, replaced_by_folder):
    write(tmp_path, a_md=b"a")
    source = source_of(tmp_path)
    (split,) = source.splits()
    (tmp_path / "a.md").unlink()
    if replaced_by_folder:
        (tmp_path / "a.md").mkdir()

    with pytest.raises(SourceError, match="not visible from this machine"):
        list(source.read(split))


def test_a_large_file_is_an_error_with_size_and_limit(tmp_path):
    write(tmp_path, a_md=b"x" * 11, b_md=b"x" * 10, c_txt=gzip.compress(b"x" * 100))

    large, fits, packed = read(source_of(tmp_path, max_document_bytes=40))
    assert (large.error_code, fits.error_code) == (None, None)
    assert packed.error_code == "too-large"

    large, fits, packed = read(source_of(tmp_path, max_document_bytes=10))
    assert (large.doc_id, large.error_code, large.content) == ("a.md", "too-large", None)
    assert "11 bytes, the limit is 10" in large.error_message
    assert fits.content == b"x" * 10


def test_gzip_is_known_by_its_first_bytes(tmp_path):
    packed = gzip.compress(b"one ") + gzip.compress(b"two")
    files = {
        "a.md.gz": packed,
        "b.md": packed + b"\0" * 8,
        "c.txt.gz": b"plain",
        "d.txt": packed[:-6],
        "e.txt": packed + b"junk",
        "f.txt": packed[:12] + b"\xff\xff\xff\xff" + packed[16:],
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)

    rows = read(source_of(tmp_path, include=("*",)))

    assert [row.content for row in rows[:3]] == [b"one two", b"one two", b"plain"]
    assert [(row.doc_id, row.error_code) for row in rows[3:]] == [
        ("d.txt", "truncated"),
        ("e.txt", "damaged"),
        ("f.txt", "damaged"),
    ]


def test_many_files_become_several_splits_in_order(tmp_path):
    names = [f"{number:04}.txt" for number in range(SPLIT_FILES + 1)]
    for name in names:
        (tmp_path / name).write_bytes(b"x")

    source = source_of(tmp_path)

    assert [split.number for split in source.splits()] == [0, 1]
    assert ids(source) == names


def test_blocks_start_small_and_stay_small(tmp_path):
    for number in range(40):
        (tmp_path / f"{number}.txt").write_bytes(b"x" * 2**19)

    source = source_of(tmp_path)
    blocks = [block for split in source.splits() for block in source.read(split)]

    assert sum(block.num_rows for block in blocks) == 40
    assert blocks[0].num_rows == 1
    assert 4 * 2**20 < max(block.nbytes for block in blocks) <= 8 * 2**20


def test_a_copy_on_another_machine_reads_the_same_splits(tmp_path, monkeypatch):
    write(tmp_path, docs__a_md=b"a")
    monkeypatch.chdir(tmp_path)
    source = source_of("docs")
    splits = source.splits()
    settings = FilesSourceSettings(kind="files", path="docs")
    monkeypatch.chdir("/")

    for copy in (pickle.loads(pickle.dumps(source)), FilesSource(settings)):
        (block,) = copy.read(splits[0])
        assert [row.doc_id for row in documents_of(block)] == ["a.md"]


def test_a_read_error_in_the_middle_of_a_file_is_an_error_of_that_file(tmp_path):
    write(tmp_path, a_md=b"a")

    class Failing(BytesIO):
        def read(self, size=-1):
            raise OSError(5, "Input/output error")

    (row,) = read(source_of(tmp_path, open_file=lambda path: Failing(b"a")))

    assert (row.doc_id, row.error_code) == ("a.md", "unreadable")
