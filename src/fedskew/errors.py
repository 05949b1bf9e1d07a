"""Every error a user can meet. Each message reads ``where: what. What to do.``

::

    FedskewError                    exit code 2 on the command line
    ├── RecipeError                 a recipe, an option or a stage name is wrong
    ├── DataError                   a dataset cannot be found, read or trusted
    │   └── InfeasiblePartition     no partition meets the rule (carries the best attempt)
    ├── StudyError                  a study of evidence/ cannot be read or made
    ├── SignalError                 label counts or proportions are not usable
    ├── RunFolderError              a run folder or checkpoint cannot be read, written or resumed
    └── RunError                    a run cannot go on
        ├── RoundFailed             fewer usable replies than ``min_ok``
        └── WorkerError             a worker process keeps dying
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from fedskew.foreign import printable

LONGEST = 2000  # characters of a part of a message; what is quoted in it may be hostile


class FedskewError(Exception):
    """Parent of every error raised on purpose. Whatever it quotes cannot move the cursor.

    >>> print(FedskewError("recipe", "no rounds given", "Set run.rounds"))
    recipe: no rounds given. Set run.rounds.
    """

    def __init__(self, where: str, what: str, remedy: str = "") -> None:
        where, what, remedy = (_clean(part) for part in (where, what, remedy))
        self.where, self.what, self.remedy = where, what.rstrip("."), remedy.rstrip(".")
        end = "" if self.remedy.endswith("?") else "."
        super().__init__(f"{where}: {self.what}." + (f" {self.remedy}{end}" if self.remedy else ""))

    def __reduce__(self) -> tuple[Any, ...]:
        """Errors cross from worker processes to their parent."""
        return type(self), (self.where, self.what, self.remedy)


def _clean(text: str) -> str:
    return printable(" ".join(text.splitlines()), LONGEST)


class RecipeError(FedskewError):
    """A recipe, an option or a stage name is wrong."""


class DataError(FedskewError):
    """A dataset cannot be found, read or trusted."""


class InfeasiblePartition(DataError):
    """No partition met the rule within the allowed tries; ``best`` is the closest one, a (K, C)
    count matrix.
    """

    def __init__(self, where: str, what: str, remedy: str = "", *, best: Any = None) -> None:
        super().__init__(where, what, remedy)
        self.best = best


class StudyError(FedskewError):
    """A study of evidence/ cannot be read or made."""


class SignalError(FedskewError):
    """Label counts or proportions are not usable."""


class RunFolderError(FedskewError):
    """A run folder or checkpoint cannot be read, written or resumed."""


class RunFolderWarning(UserWarning):
    """A run folder is damaged, and the run goes on all the same."""


def plain_warnings() -> None:
    """In a process of ours: warnings of ours are one line; others look as ever."""
    ordinary = warnings.formatwarning

    def text(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        line: str | None = None,
    ) -> str:
        ours = issubclass(category, RunFolderWarning)
        return f"note {message}\n" if ours else ordinary(message, category, filename, lineno, line)

    warnings.formatwarning = text


class RunError(FedskewError):
    """A run cannot go on."""


class RoundFailed(RunError):
    """Fewer usable replies than ``min_ok``."""


class WorkerError(RunError):
    """A worker process keeps dying."""


@contextmanager
def foreign_file(kind: type[FedskewError], where: str, remedy: str) -> Iterator[None]:
    """Whatever a library says about a file from elsewhere, as one error of ours.

    >>> with foreign_file(DataError, "a.npz", "Fetch it again"):
    ...     {}["x"]
    Traceback (most recent call last):
    fedskew.errors.DataError: a.npz: cannot be read (KeyError: 'x'). Fetch it again.
    """
    try:
        yield
    except FedskewError:
        raise
    except Exception as error:  # a damaged file makes libraries raise anything at all
        said = printable(" ".join(str(error).split()), 200)
        what = f"cannot be read ({type(error).__name__}{': ' if said else ''}{said})"
        raise kind(where, what, remedy) from error


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """One sentence that names the nearest known spelling, or lists what is known.

    >>> did_you_mean("unifrom", ["uniform", "fedlecc"])
    "Did you mean 'uniform'?"
    >>> did_you_mean("zzz", ["uniform", "fedlecc"])
    'Known: fedlecc, uniform'
    """
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    if near:
        return f"Did you mean '{near[0]}'?"
    return f"Known: {', '.join(known)}" if known else "Nothing is known here"
