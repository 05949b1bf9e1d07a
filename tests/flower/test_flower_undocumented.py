"""What Flower does not document and fedskew uses, looked at in the Flower that is installed. A test
that fails here names what a new version of Flower has changed.
"""

from __future__ import annotations

import inspect
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: make test-flower has it")
from flwr.app import Array

from fedskew.runtime.flower import undocumented as used


def test_a_dead_node_has_the_code_we_take_for_it():
    from flwr.common.constant import ErrorCode

    assert ErrorCode.NODE_UNAVAILABLE == used.GONE, "the error code of a node that has left"


def test_an_exception_of_the_app_is_worded_as_we_read_it():
    from flwr.supernode.runtime import run_clientapp

    source = inspect.getsource(run_clientapp)
    worded = 'str(type(ex)) + ":<\'" + str(ex) + "\'>"'
    assert worded in source, "how a node words an exception of the app"
    error = ValueError("no such file")
    found = used.RAISED.fullmatch(f"{type(error)}:<'{error}'>")
    assert found.groups() == ("ValueError", "no such file")


def test_arrays_are_called_what_we_call_them():
    made = Array(np.zeros(3, np.float32))
    assert made.stype == used.NUMPY, "the name of arrays in numpy's format"
    assert made.data.startswith(b"\x93NUMPY\x01\x00"), "the format of arrays"


def test_the_superlink_has_the_number_that_replies_go_to():
    from flwr.common.constant import SUPERLINK_NODE_ID

    assert SUPERLINK_NODE_ID == used.SUPERLINK_NODE, "the node number of the SuperLink"


def served_paths() -> set[str]:
    from flwr.supercore.routers.runtime.router import router as runtime
    from flwr.superlink.routers.control.router import router as control
    from flwr.superlink.routers.fleet.router import router as fleet

    return {route.path for router in (control, fleet, runtime) for route in router.routes}


def test_the_paths_that_the_gate_knows_are_served():
    missing = {*used.NODE_CALLS, used.KEYLESS, *used.UNASKED} - served_paths()
    assert not missing, f"paths of the SuperLink: {sorted(missing)} are gone"


def test_every_other_call_of_a_node_is_known():
    """One that is new would be refused by the gate, and nodes would fail behind it."""
    fleet = {path for path in served_paths() if path.startswith(used.FLEET_API)}
    new = fleet - used.NODE_CALLS - {used.KEYLESS, used.FLEET_API + "unregister-node"}
    assert not new, f"calls of SuperNodes that the gate does not know: {sorted(new)}"


def test_clocks_may_differ_as_much_as_we_say():
    from flwr.supercore.constant import SYSTEM_TIME_TOLERANCE, TIMESTAMP_TOLERANCE

    assert SYSTEM_TIME_TOLERANCE == used.AHEAD_SECONDS, "how far ahead a clock may be"
    behind = TIMESTAMP_TOLERANCE + SYSTEM_TIME_TOLERANCE
    assert behind == used.BEHIND_SECONDS, "how far behind a clock may be"


def test_the_signed_time_is_in_the_header_we_read():
    from flwr.common.constant import TIMESTAMP_HEADER

    assert TIMESTAMP_HEADER.encode() == used.SIGNED_TIME, "the header with the signed time"


def test_messages_and_apps_can_be_read_on_their_way():
    from flwr.proto.fab_pb2 import GetFabResponse
    from flwr.proto.fleet_pb2 import PushMessagesRequest

    answer = GetFabResponse()
    answer.fab.content = b"an app"
    assert used.app_in(answer.SerializeToString()) == b"an app", "the answer with an app in it"
    pushed = PushMessagesRequest()
    pushed.messages_list.add().metadata.dst_node_id = 7
    read = used.pushed_messages(pushed.SerializeToString())
    assert [m.metadata.dst_node_id for m in read.messages_list] == [7], "what a node pushes"
    assert read.messages_list[0].metadata.reply_to_message_id == ""
    assert read.messages_list[0].metadata.src_node_id == 0


def test_the_superlinks_application_is_made_where_the_guard_takes_it():
    from flwr.superlink import main
    from flwr.superlink.cli import flower_superlink

    source = inspect.getsource(sys.modules[flower_superlink.__module__])
    assert callable(main.create_app), "flwr.superlink.main.create_app"
    imported = "from flwr.superlink.main import" in source and "create_app" in source
    assert imported, "the SuperLink's command takes create_app from flwr.superlink.main when called"


def test_a_superexec_finds_the_client_program_on_the_path():
    from flwr.supercore.constant import TASK_TYPE_TO_COMMAND, TaskType
    from flwr.supercore.superexec.executor import subprocess_executor

    assert TASK_TYPE_TO_COMMAND[TaskType.CLIENT_APP] == used.CLIENT_PROGRAM, "the client program"
    source = inspect.getsource(subprocess_executor)
    assert "TASK_TYPE_TO_COMMAND[spec.task_type]," in source, "it is started by its bare name"
    from flwr.supernode.cli import flwr_clientapp

    assert callable(flwr_clientapp), "the client program as a function"


def test_a_superexec_polls_as_often_as_it_is_told():
    from flwr.supercore.superexec import run_superexec

    source = inspect.getsource(run_superexec)
    assert f'"{used.POLL_VARIABLE}"' in source, "the variable for the polling interval"


def test_nothing_of_flower_is_imported_before_it_is_needed():
    code = "import sys, fedskew.runtime.flower.undocumented; print('flwr' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
