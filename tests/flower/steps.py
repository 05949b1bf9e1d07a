"""An addition to a generated app: in every round each client waits until it is told to train, so
that things happen exactly where a test wants them, however busy the machine is.
"""

from __future__ import annotations

from pathlib import Path

CLIENT_APP = """
import time
from pathlib import Path

from fedskew.runtime.flower.records import from_records

STEPS = Path({steps!r})


class Waiting(type(app)):
    def __call__(self, message, context):
        if message.metadata.message_type.startswith("train"):
            note = from_records(message.content, "train")
            place = f"{{note.values['client']}}-{{note.values['round']}}"
            (STEPS / f"at-{{place}}").touch()
            while not (STEPS / f"go-{{place}}").exists():
                time.sleep(0.1)
        return super().__call__(message, context)


app.__class__ = Waiting
"""


class Steps:
    """Where clients are, and how far they may go; all processes see the same folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder

    def at(self, round: int, *clients: int) -> bool:
        """Whether these clients wait, or have waited, in this round."""
        return all((self.folder / f"at-{client}-{round}").exists() for client in clients)

    def go(self, round: int, *clients: int) -> None:
        """These clients may train in this round."""
        for client in clients:
            (self.folder / f"go-{client}-{round}").touch()


def add_steps(app: Path, steps: Steps) -> Path:
    """Change an app of ``fedskew flower new`` so that its clients wait."""
    with open(app / "client_app.py", "a") as file:
        file.write(CLIENT_APP.format(steps=str(steps.folder)))
    return app
