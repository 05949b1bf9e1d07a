"""The federation's label shares, for objectives that need them: they go down with the job."""

from __future__ import annotations

from dataclasses import replace

from fedskew.accounting.traffic import share_transfers
from fedskew.loop.method import Setting
from fedskew.objective import needs_shares
from fedskew.types import Signal, State, Transfer


def with_shares(setting: Setting, state: State) -> Setting:
    """The setting whose jobs tell the shares as the signal has them now, if anybody needs them."""
    method = setting.method
    if state.signal is None or not needs_shares(method.job):
        return setting
    job = replace(method.job, label_shares=shares_of(state.signal))
    return replace(setting, method=replace(method, job=job))


def shares_of(signal: Signal) -> tuple[float, ...]:
    """Shares of all examples together.

    >>> shares_of(Signal([[1.0, 0.0], [0.5, 0.5], [0.0, 0.0]], [30, 10, 5], "disclosed"))
    (0.875, 0.125)
    """
    sizes = signal.num_examples * signal.known
    totals = sizes @ signal.rows
    return tuple((totals / max(totals.sum(), 1e-300)).tolist())


def told_transfers(setting: Setting, clients: int) -> tuple[Transfer, ...]:
    """What telling them to so many clients takes."""
    return share_transfers(clients, len(setting.method.job.label_shares))
