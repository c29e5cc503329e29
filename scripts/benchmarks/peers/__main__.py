"""The product beside other frameworks: same documents, same model, same kind of store, in turn.

LlamaIndex, LangChain, Haystack and Ray Data, each as its documentation builds such a pipeline and
in a virtual environment of its own with pinned versions, and LlamaIndex as an expert sets it up
(OpenVINO, large sorted batches). The scripts are beside this one, a page each. Every contender
reads the same file and embeds with the same packaged weights into an embedded Qdrant in a folder.
The frameworks cut at 1,000 characters, where the model does not see the end of some chunks; the
product cuts at the model's window and embeds everything.

Three runs, each a process from its start to its end: cold, unchanged (the same file again), and
with 1 % of the documents changed. Memory is the most that all processes of a run had together,
as proportional set size. In rounds, the order turning, after a run of each that does not count.
What each has stored is compared with float32 vectors of the same texts; below a cosine of 0.9999
it is marked "other".

The environments take some 9 GB in --cache and are made the first time. Set EMBEDMILL_TORCH_INDEX
where the default build of PyTorch carries CUDA, as for scripts/install.

Fails when a goal is missed: cold 5 times as fast as the fastest of the defaults and faster than the
expert's, both reruns not slower than the fastest, memory not above the median of theirs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.figures import no_verdict
from benchmarks.ingesting import add_maximum_others, parser, scratch
from benchmarks.machine import others_cores
from benchmarks.peers.contenders import CONTENDERS, Contender, Runner
from benchmarks.peers.corpus import Corpus, add_corpus, make_corpus
from benchmarks.peers.environments import default_cache
from benchmarks.peers.goals import judge
from benchmarks.peers.plot import comparison_svg
from benchmarks.peers.results import Result, with_cosine
from benchmarks.peers.table import show_corpus, show_table

_WARM_UP = 8


def main() -> int:
    """Measure as the command line says."""
    options = _options()
    with scratch() as folder:
        corpus = make_corpus(options, folder)
        runners = [
            Runner(
                contender,
                options.cache,
                folder / str(number),
                timeout_s=options.timeout,
                period_s=options.period,
            )
            for number, contender in enumerate(_chosen(options.only))
        ]
        if not options.no_warm_up:
            _warm_up(runners, corpus, folder)
        results = _measured(runners, corpus, options.rounds, options.once or ())
    results = [with_cosine(result) for result in results]
    show_corpus(corpus, options.rounds)
    show_table(results)
    if options.plot:
        options.plot.write_text(comparison_svg(results, corpus), "utf-8")
        print(f"\nplot: {options.plot}")
    others = others_cores([run for result in results for run in result.runs])
    status = judge(results, options.goal)
    return no_verdict(others, options.maximum_others) if others > options.maximum_others else status


def _options() -> argparse.Namespace:
    made = parser(__doc__, timeout_s=1800)
    add_corpus(made)
    made.add_argument("--rounds", type=int, default=3, help="of each (default %(default)s)")
    made.add_argument(
        "--only",
        type=lambda names: names.split(","),
        help=f"of {', '.join(each.name for each in CONTENDERS)}; separated by commas",
    )
    made.add_argument(
        "--once", type=lambda names: names.split(","), help="of them, measured in one round only"
    )
    made.add_argument(
        "--no-warm-up", action="store_true", help="after another run of this, just before"
    )
    made.add_argument("--cache", type=Path, default=default_cache(), help="default: %(default)s")
    made.add_argument("--plot", type=Path, help="write the table as a picture (SVG)")
    made.add_argument("--goal", type=float, default=5.0, help="of a cold run (%(default)g)")
    made.add_argument(
        "--period",
        type=float,
        default=0.5,
        help="seconds between two looks at memory (%(default)g)",
    )
    add_maximum_others(made)
    options = made.parse_args()
    if wrong := set(options.only or ()) - {each.name for each in CONTENDERS}:
        made.error(f"--only: {', '.join(sorted(wrong))} is none of them")
    return options


def _chosen(only: Sequence[str] | None) -> list[Contender]:
    return [each for each in CONTENDERS if not only or each.name in only or each.kind == "ours"]


def _warm_up(runners: Sequence[Runner], corpus: Corpus, folder: Path) -> None:
    """Run each once, so that files are in memory and what is made once is made."""
    few = folder / "few.jsonl"
    few.write_bytes(b"".join(corpus.first.read_bytes().splitlines(keepends=True)[:_WARM_UP]))
    for runner in runners:
        runner.forget()
        seconds = runner.run(few).seconds
        print(f"warm-up: {runner.contender.name} {seconds:.1f} s", flush=True)


def _measured(
    runners: Sequence[Runner], corpus: Corpus, rounds: int, once: Sequence[str]
) -> list[Result]:
    results = {runner.contender.name: Result(runner.contender) for runner in runners}
    for number in range(rounds):
        at = number % len(runners)
        for runner in [*runners[at:], *runners[:at]]:
            result = results[runner.contender.name]
            single = runner.contender.name in once
            if single and number:
                continue
            _one_round(runner, corpus, result, last=single or number == rounds - 1)
            print(f"round {number + 1}: {result.newest}", flush=True)
    return list(results.values())


def _one_round(runner: Runner, corpus: Corpus, result: Result, *, last: bool) -> None:
    runner.forget()
    result.cold.append(runner.run(corpus.first))
    if last:
        result.stored = runner.stored()
    if runner.contender.remembers:
        result.unchanged.append(runner.run(corpus.first))
        result.changed.append(runner.run(corpus.edited))
        if last:
            result.points_after = runner.stored().points


if __name__ == "__main__":
    sys.exit(main())
