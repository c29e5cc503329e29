"""What a source delivers, for tests of sources."""

from embedmill.document import documents_of


def read(source):
    """All rows of a source."""
    return [
        row
        for split in source.splits()
        for block in source.read(split)
        for row in documents_of(block)
    ]


def ids(source):
    """Ids of all rows of a source."""
    return [row.doc_id for row in read(source)]
