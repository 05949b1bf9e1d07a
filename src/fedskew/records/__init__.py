"""Run folders: what a run leaves on disk, and how a killed run goes on.

::

    recipe.toml              the resolved recipe: everything but the seed
    run.json                 seed, fingerprint, versions, commit, machine
    rounds.jsonl             one line per round, flushed as it happens; all but "times" repeats
    checkpoint.safetensors   the latest State, replaced atomically; until the run has ended the one
                             before it is kept as checkpoint.previous.safetensors
    final.safetensors        the final model, tensors by name
    labels.json              how many examples of each class every client trains on, if known
    clients.json             per-client results of the final model
    result.json              the summary that --json prints
    references.json          if a comparison asked for them: rows to show personalised methods with
    fleet.json               of a fleet: which Flower runs played it, and what each sent

Nothing here is pickled: reading a folder from a stranger cannot run code. Every file knows its own
checksum (``sums.py``; that of recipe.toml stands in run.json), the lines of rounds.jsonl are a
chain that checkpoint and result are bound to, and whoever reads a folder checks all of it
(``reading.py``).
"""

from fedskew.records.checkpoints import CHECKPOINT, PREVIOUS
from fedskew.records.files import (
    disk_errors,
    no_nan,
    no_none,
    read_json,
    write_atomically,
    write_json,
    write_sealed,
)
from fedskew.records.folder import RunFolder, check_free, machine_facts
from fedskew.records.labels import LABELS, Labels, labels_bytes, read_labels
from fedskew.records.reading import (
    CLIENTS,
    FINAL,
    PENDING,
    RECIPE,
    RESULT,
    RUN,
    SUMS,
    UNCHECKED,
    Contents,
    read_folder,
    read_rounds,
    read_state,
)
from fedskew.records.references import COMPUTED, REFERENCES, read_references, write_references
from fedskew.records.rounds import ROUNDS, line_of, record_of
from fedskew.records.tensors import (
    VERSION,
    checkpoint_bytes,
    model_bytes,
    read_checkpoint,
    read_frozen,
    read_model,
    read_num_models,
)

__all__ = [
    "CHECKPOINT", "CLIENTS", "COMPUTED", "FINAL", "LABELS", "PENDING", "PREVIOUS", "RECIPE",
    "REFERENCES", "RESULT", "ROUNDS", "RUN", "SUMS", "UNCHECKED", "VERSION", "Contents",
    "Labels", "RunFolder", "check_free", "checkpoint_bytes", "disk_errors", "labels_bytes",
    "line_of", "machine_facts", "model_bytes", "no_nan", "no_none", "read_checkpoint",
    "read_folder", "read_frozen", "read_json",
    "read_labels", "read_model", "read_num_models", "read_references", "read_rounds", "read_state",
    "record_of",
    "write_atomically", "write_json", "write_references", "write_sealed",
]  # fmt: skip
