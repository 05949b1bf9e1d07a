"""Everything of Flower that is used here and that its documentation does not promise.

Read in the source of flwr 1.41.0 and 1.42.0. ``tests/flower/test_flower_undocumented.py`` looks at
each in the Flower that is installed and says which one a new version has broken. Nothing of Flower
is imported before it is needed: the gate and the commands must start quickly.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

# ---------------------------------------------------------------- messages

GONE = 5  # the code of the error that the SuperLink makes up for a node without heartbeats
# how a node words an exception of the app: <class 'X'>:<'text'>
RAISED = re.compile(r"<class '(?:[\w.]*\.)?(\w+)'>:<'(.*?)(?:'>)?")
NUMPY = "numpy.ndarray"  # what an array in numpy's format is called
SUPERLINK_NODE = 1  # the number of the SuperLink itself, as receiver of replies

# ---------------------------------------------------------------- what is served on one port

FLEET_API = "/v1/fleet/"
PUSH = FLEET_API + "push-messages"
GET_APP = FLEET_API + "get-fab"
KEYLESS = FLEET_API + "register-node"  # what a SuperNode without a key calls first
NODE_CALLS = frozenset(  # of a SuperNode with a key
    {
        PUSH,
        GET_APP,
        *(
            FLEET_API + name
            for name in (
                "activate-node",
                "deactivate-node",
                "send-node-heartbeat",
                "pull-messages",
                "get-run",
                "push-object",
                "pull-object",
                "confirm-message-received",
            )
        ),
    }
)
# nobody is asked who he is: what members must not reach, one of each interface
UNASKED = ("/v1/control/list-runs", "/v1/runtime/acquire-task")
SIGNED_TIME = b"flwr-timestamp"  # header of a node's calls
AHEAD_SECONDS, BEHIND_SECONDS = 5.0, 305.0  # how wrong a node's clock may be

# ---------------------------------------------------------------- processes

SUPERLINK = b"flower-superlink"  # in its command line; above a ServerApp, with a SuperExec between
POLL_VARIABLE = "FLWR_SUPEREXEC_TASK_POLL_INTERVAL"
# the program that answers one message, which a SuperExec looks for on the PATH
CLIENT_PROGRAM = "flwr-clientapp"


def pushed_messages(content: bytes) -> Any:
    """What a node pushes; raises DecodeError."""
    from flwr.proto.fleet_pb2 import PushMessagesRequest

    return PushMessagesRequest.FromString(content)


def app_in(reply: bytes) -> bytes:
    """The bundle in the answer to a node that asks for an app; raises DecodeError."""
    from flwr.proto.fab_pb2 import GetFabResponse

    content: bytes = GetFabResponse.FromString(reply).fab.content
    return content


def run_superlink(around: Callable[[Any], Any]) -> None:
    """``flower-superlink`` with something around its application."""
    from flwr.superlink import main as superlink
    from flwr.superlink.cli import flower_superlink

    make = superlink.create_app
    superlink.create_app = lambda *given, **named: around(make(*given, **named))
    flower_superlink()


def run_clientapp() -> None:
    """``flwr-clientapp``, which answers one message by the arguments in ``sys.argv``."""
    from flwr.supernode.cli import flwr_clientapp

    flwr_clientapp()
