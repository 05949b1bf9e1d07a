"""Measure: how skewed is a federation, who groups with whom, what would each paper's rule do?

``read_counts`` reads a file, ``counts_of_data`` divides a dataset, ``counts_of_run`` and
``counts_of_runs`` know who had what in runs, ``counts_of_signal`` what a server was told;
``measure`` computes every figure and grouping; ``verdict`` puts them into words; ``privacy_table``
says what noise on the counts would spoil.
"""

from __future__ import annotations

from fedskew.measure.counts import Counts
from fedskew.measure.groups import Grouping
from fedskew.measure.layout import Form
from fedskew.measure.measurement import Measurement, measure
from fedskew.measure.payload import measurement_payload, privacy_payload
from fedskew.measure.privacy import NoiseRow, PrivacyTable, privacy_table
from fedskew.measure.sources import (
    counts_of_data,
    counts_of_run,
    counts_of_runs,
    counts_of_signal,
)
from fedskew.measure.tables import read_counts
from fedskew.measure.wording import verdict

__all__ = [
    "Counts",
    "Form",
    "Grouping",
    "Measurement",
    "NoiseRow",
    "PrivacyTable",
    "counts_of_data",
    "counts_of_run",
    "counts_of_runs",
    "counts_of_signal",
    "measure",
    "measurement_payload",
    "privacy_payload",
    "privacy_table",
    "read_counts",
    "verdict",
]
