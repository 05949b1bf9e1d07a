"""Additions to a generated app: clients that fail when told to, and nodes that do not belong."""

from __future__ import annotations

from pathlib import Path

# clients with no examples, with another model, with another program
EMPTY, OTHER_MODEL, FOREIGN = 5, 6, 7
TASK = '''

import time
from dataclasses import replace
from pathlib import Path

import torch

FLAGS = Path({flags!r})
HERE = []  # the client this process answers for; nobody in the ServerApp


def once(what):
    """Whether this client was told to fail so; a flag is good for one failure."""
    try:
        (FLAGS / f"{{what}}-{{HERE[0]}}").unlink()
    except FileNotFoundError:
        return False
    return True


class Mishap(torch.nn.Module):
    def forward(self, x):
        if not self.training or not HERE:
            return x
        if once("raise"):
            raise RuntimeError("the disk is gone")
        if once("pause"):
            mark = FLAGS / f"training-{{HERE[0]}}"
            mark.touch()
            while mark.exists():
                time.sleep(0.1)
        return x * float("nan") if once("nan") else x


def load_data(client, settings):
    HERE[:] = [client]
    data = recipe_share(client, settings)
    return replace(data, x=data.x[:0], y=data.y[:0]) if client == {empty} else data


def build_model(settings):
    if HERE == [{other}]:
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    return torch.nn.Sequential(Mishap(), recipe_model(settings))
'''
CLIENT_APP = """
from flwr.app import Message, RecordDict


class Stranger(type(app)):
    def __call__(self, message, context):
        if context.node_config["partition-id"] == {foreign}:
            return Message(RecordDict(), reply_to=message)
        return super().__call__(message, context)


app.__class__ = Stranger
"""


class Flags:
    """Tells clients what to do, and hears how far they are; all processes read the same folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder

    def tell(self, client: int, what: str) -> None:
        """raise, nan or pause, at the client's next training step."""
        (self.folder / f"{what}-{client}").touch()

    def training(self, client: int) -> bool:
        """Whether a client that was told to pause is at it: in the middle of its training."""
        return (self.folder / f"training-{client}").exists()

    def go_on(self, client: int) -> None:
        """The pause is over."""
        (self.folder / f"training-{client}").unlink(missing_ok=True)

    def remaining(self) -> list[str]:
        """What was told and has not happened."""
        return sorted(path.name for path in self.folder.iterdir())


def add_mishaps(app: Path, flags: Flags) -> Path:
    """Change an app of ``fedskew flower new`` so that its clients look at the flags."""
    extra = TASK.format(flags=str(flags.folder), empty=EMPTY, other=OTHER_MODEL)
    text = (app / "task.py").read_text()
    (app / "task.py").write_text(text.replace("\ntask = ", f"{extra}\n\ntask = "))
    with open(app / "client_app.py", "a") as file:
        file.write(CLIENT_APP.format(foreign=FOREIGN))
    return app
