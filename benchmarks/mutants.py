"""Would a test notice? Sampled small changes to the code, each played against the tests that
concern its module.

    make mutants                                   300 mutants, at most 30 minutes, goes on later
    python benchmarks/mutants.py --limit 10        a few of them
    python benchmarks/mutants.py --survivors       those that survived once more
    python benchmarks/mutants.py --survivors --wide          the same, against all quick tests

Mutants have a fixed order (by a hash of the change), so a larger ``--limit`` only adds to a smaller
one, and a change to the code moves nobody else. Results are kept in evidence/mutants by the text of
the file they are about: a file that has changed is played again. What hangs is killed.
"""

from __future__ import annotations

import argparse
import fcntl
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from mutant_results import Result, read_results, reasons, result_of, source_of, write_results
from mutant_shop import STREET, Verdict, check_untouched, close, open_shop, play
from mutant_tests import ROOT, files, played_by
from mutations import Mutant, digest, mutants_of


def everything(seed: int) -> list[Mutant]:
    """All mutants in the order in which they are played."""
    found = [
        m for file in files() for m in mutants_of(str(file.relative_to(ROOT)), file.read_text())
    ]
    return sorted(found, key=lambda mutant: digest(f"{seed}|{mutant.id}"))


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--limit", type=int, default=300, help="mutants in all, played before too")
    parser.add_argument("--minutes", type=float, default=30.0, help="no new mutant after these")
    parser.add_argument("--workers", type=int, default=2, help="mutants played at once")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--survivors", action="store_true", help="play survivors once more")
    parser.add_argument("--wide", action="store_true", help="against all quick tests")
    return parser.parse_args()


def todo_of(chosen: list[Mutant], results: dict[str, Result], survivors: bool) -> list[Mutant]:
    """Who is played now. What was argued to change nothing is played like everybody else."""
    if survivors:
        return [m for m in chosen if m.id in results and not results[m.id]["killed_by"]]
    return [m for m in chosen if m.id not in results]


def work(
    shop: Path, todo: deque[Mutant], end: float, wide: bool, keep: Callable[[Mutant, Verdict], None]
) -> None:
    """Play mutants in one shop until none is left, or no time."""
    while todo and time.monotonic() < end:
        try:
            mutant = todo.popleft()
        except IndexError:  # the other worker took it
            return
        try:
            verdict = play(mutant, shop, played_by(mutant.file, wide=wide))
        except InterruptedError as error:  # no verdict: it waits for another call
            print(error, flush=True)
            continue
        keep(mutant, verdict)


def play_all(
    todo: list[Mutant], given: argparse.Namespace, keep: Callable[[Mutant, Verdict], None]
) -> None:
    """Two workers or more, each with a copy of its own."""
    end = time.monotonic() + 60 * given.minutes
    shops = [open_shop(number) for number in range(given.workers)]
    waiting, failures = deque(todo), []
    ready = threading.Barrier(given.workers)  # nobody begins before every test has passed
    used = list(dict.fromkeys(t for m in todo for t in played_by(m.file, wide=given.wide)))

    def one(number: int) -> None:
        try:
            check_untouched(shops[number], used[number :: given.workers])
            ready.wait()
            work(shops[number], waiting, end, given.wide, keep)
        except BaseException as error:
            failures.append(error)
            waiting.clear()
            ready.abort()

    workers = [threading.Thread(target=one, args=(i,), daemon=True) for i in range(given.workers)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if failures:
        raise failures[0]


def main() -> None:
    """Play until the limit, or until the time is over."""
    given = options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended; what was played is kept"))
    STREET.mkdir(exist_ok=True)
    alone = open(STREET / "lock", "w")  # noqa: SIM115
    fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)  # one call at a time
    every, results, lock = everything(given.seed), read_results(), threading.Lock()
    chosen = every[: given.limit]
    todo, began = todo_of(chosen, results, given.survivors), time.monotonic()
    argued = reasons(chosen)
    sources = {mutant.file: source_of(mutant.file) for mutant in chosen}  # as it is copied
    print(f"{len(todo)} of {len(chosen)} mutants to play; first all tests without any", flush=True)
    done = 0

    def keep(mutant: Mutant, verdict: Verdict) -> None:
        nonlocal done
        source = sources[mutant.file]
        result = result_of(mutant, verdict.killed_by, verdict.cpu_seconds, source)
        with lock:
            results[mutant.id], done = result, done + 1
            fate = result["killed_by"] or (
                "the same program" if mutant.id in argued else "SURVIVED"
            )
            spent = (
                f"{result['cpu_seconds']} s, {(time.monotonic() - began) / 60:.1f} minutes in all"
            )
            print(f"{done}/{len(todo)} {mutant.file}:{mutant.line}  {mutant.what}", flush=True)
            print(f"    {fate}  ({spent})", flush=True)
            write_results(results, chosen, len(every))

    try:
        play_all(todo, given, keep)
    finally:
        close()
    write_results(results, chosen, len(every))
    waiting = sum(mutant.id not in results for mutant in chosen)
    print(f"evidence/mutants/README.md; {waiting} of {len(chosen)} wait for another call")


if __name__ == "__main__":
    main()
