"""Any history of documents, any crashes: in the end the index is the one that is built at once."""

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scenario import REFUSED, REJECTED, CrashIndex, embedded_twice, litter, lived_through

from embedmill.errors import RefusedError
from embedmill.testing.crash_points import Process

# Few words and few documents, so that texts come twice, within a document and across them.
words = st.sampled_from(["red", "green", "blue", "stone", "river", "moon", REFUSED, REJECTED])
texts = st.lists(words, max_size=9).map(" ".join) | st.just(["unreadable"])
documents = st.dictionaries(st.sampled_from("abcdefgh"), texts, max_size=7)
# The n-th effect of a run, where it has so many, and when the process dies there.
crashes = st.lists(st.tuples(st.integers(1, 60), st.sampled_from(["before", "after"])), max_size=3)
steps = st.lists(
    st.tuples(st.sampled_from(["sync", "sync", "sync", "compact", "replay"]), documents, crashes),
    min_size=3,
    max_size=7,
)
# Without one good document, a run says that all have died.
ANCHOR = {"anchor": "one good document"}


@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
@given(history=steps, last=documents)
def test_any_history_with_any_crashes_ends_as_if_built_at_once(history, last):
    with tempfile.TemporaryDirectory() as folder:
        index = CrashIndex(Path(folder))
        index.ingest(documents=ANCHOR)
        processes = [died for step in history for died in live(index, *step)]
        final = Process()
        index.ingest(final, documents={**last, **ANCHOR})
        report = index.last_report()
        assert report.problems() == []
        assert litter(index) == set()
        wasted = embedded_twice(index, *processes, final)
        last_calls = [texts for process in processes for texts in last_call(process)]
        assert set(wasted) <= {text for texts in last_calls for text in texts}
        assert same(index, built_at_once(Path(folder), {**last, **ANCHOR}), last)


def live(index, kind, source, crashes):
    """One step of a history, with its crashes; what is left undone, a later step has to do."""
    if kind == "sync":
        index.write({**source, **ANCHOR})
    run = {"sync": index.ingest, "compact": index.compact, "replay": index.replay}[kind]
    for number, moment in crashes:
        process = Process(number, moment)
        try:
            lived = lived_through(run, process)
        except RefusedError:
            # Segments that a killed run left cannot be folded.
            if kind != "compact":
                raise
            lived = True
        yield process
        if lived:
            return


def last_call(process):
    """What the embedder was asked for last, by a process that died."""
    calls = [effect.texts for effect in process.effects if effect.kind == "embed"]
    return calls[-1:] if process.crashed else []


def built_at_once(folder, source):
    index = CrashIndex(folder)
    index.ingest(documents=source)
    return index.state()


def same(index, expected, last):
    """Compare; rows that moved keep the place that they had, unreadable ones what they were."""
    state = index.state()
    unreadable = {name for name, text in last.items() if not isinstance(text, str)}

    def records(of):
        return {
            record: ({k: v for k, v in payload.items() if k != "uri"}, of.vectors[record])
            for record, payload in of.payloads.items()
            if payload["doc_id"] not in unreadable
        }

    assert records(state) == records(expected)
    known = {str(payload["doc_id"]) for payload in state.payloads.values()}
    assert known - unreadable == {str(p["doc_id"]) for p in expected.payloads.values()}
    assert state.letters >= expected.letters
    assert state.alias == expected.alias
    return True
