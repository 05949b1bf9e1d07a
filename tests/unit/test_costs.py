"""What rounds cost in the loop: AFLS's calibrated times, probes, faults, measured energy."""

from __future__ import annotations

import sys
import types
from dataclasses import dataclass, replace

import numpy as np
import pytest

from fedskew.accounting.devices import Devices, draw_population
from fedskew.accounting.energy import CodeCarbonMeter, RaplMeter, WallMeter, meter_for
from fedskew.accounting.traffic import (
    COUNT_BYTES,
    FLOAT_BYTES,
    LOSS_BYTES,
    SHARE_BYTES,
    delivery_transfers,
    feature_transfers,
    report_transfers,
)
from fedskew.errors import RecipeError, RunError
from fedskew.loop.federation import named, run, settle
from fedskew.recipe import method_of, resolve
from fedskew.runtime.faults import Faults, FaultyRuntime
from fedskew.runtime.metered import MeteredRuntime
from fedskew.runtime.replies import Reply
from fedskew.runtime.scripted import ScriptedRuntime
from fedskew.types import (
    AskLoss,
    AskTrial,
    AskUpdates,
    Chain,
    Layout,
    Plan,
    SelectionRule,
    TrainOrder,
    Transfer,
)

COUNTS = np.array([[10, 0], [0, 30], [20, 0], [5, 5]])
SIZES = COUNTS.sum(axis=1)  # 10, 30, 20, 10
BYTES = 6 * 4
AFLS = {"devices": {"compute_seconds": 1.0, "message_seconds": 0.276}}


def played(
    recipe,
    *,
    counts=COUNTS,
    selection=None,
    procedure=None,
    faults=None,
    script=None,
    layout=None,
):
    """Every record of a short scripted run of everyone."""
    resolved = resolve(
        {"run": {"rounds": 1, "clients_per_round": len(counts), "min_ok": 0}, **recipe}
    )
    means = draw_population(counts.sum(axis=1), Devices(**resolved["devices"]), 0)
    runtime = ScriptedRuntime(counts, population=means, script=script, layout=layout)
    method = method_of(resolved)
    if selection is not None:
        method = replace(method, selection=named("selection", "mine", selection))
    if procedure is not None:
        method = replace(method, procedure=named("procedure", "mine", procedure))
    world = runtime if faults is None else FaultyRuntime(runtime, faults, 0)
    return [record for _, record in run(settle(method, world, 0))]


def test_the_calibrated_times_come_from_a_recipe():
    ten = np.full((10, 2), 3)
    assert played(AFLS, counts=ten)[1].cost.seconds == pytest.approx(1.552)
    sequential = {**AFLS, "procedure": {"use": "sequential"}}
    assert played(sequential, counts=ten)[1].cost.seconds == pytest.approx(15.52)
    d2d = {**AFLS, "procedure": {"use": "sequential", "relay": "d2d"}}
    assert played(d2d, counts=ten)[1].cost.seconds == pytest.approx(13.036)
    shared = {"devices": {**AFLS["devices"], "uplink": "shared"}}
    assert played(shared, counts=ten)[1].cost.seconds == pytest.approx(0.276 + 1 + 10 * 0.276)


def test_the_default_is_a_millisecond_an_example_and_ten_megabit():
    cost = played({"local": {"epochs": 2}})[1].cost
    transfer = 8 * BYTES / 10e6
    assert cost.seconds == pytest.approx(2 * transfer + 2 * 30 * 0.001)
    assert cost.sample_passes == 2 * SIZES.sum()
    assert cost.joules == pytest.approx(30 * 0.001 * 2 * SIZES.sum() + 4 * transfer * 1.0)


def test_rates_and_powers_of_the_recipes_devices_are_used():
    """One chain of four, device to device: a model down and up at 1 kbit/s, three hops at 4."""
    devices = {"watts": 5.0, "transmit_watts": 2.0, "uplink_bps": 1e3, "d2d_bps": 4e3}
    cost = played({"devices": devices, "procedure": {"use": "sequential", "relay": "d2d"}})[1].cost
    computing, transfer, hops = 0.001 * SIZES.sum(), 8 * BYTES / 1e3, 3 * 8 * BYTES / 4e3
    assert cost.seconds == pytest.approx(computing + 2 * transfer + hops)
    assert cost.joules == pytest.approx(5.0 * computing + 2.0 * (transfer + hops)), (
        "receiving costs nothing"
    )


def test_each_client_draws_its_own_power():
    """Everyone alike in size: with unlike powers the energy is the sum over clients, not a
    multiple of the first one's.
    """
    devices, sizes = {"watts": 5.0, "watts_spread": 3.0, "transmit_watts": 0.0}, np.full((6, 2), 5)
    watts = draw_population(sizes.sum(axis=1), Devices(**devices), 0).watts
    assert watts.max() > 1.5 * watts.min()
    assert played({"devices": devices}, counts=sizes)[1].cost.joules == pytest.approx(
        0.01 * watts.sum()
    )


def test_a_loss_reported_before_training_is_a_third_of_a_pass():
    assert played({"local": {"report_loss": "start"}})[1].cost.sample_passes == pytest.approx(
        SIZES.sum() * 4 / 3
    )


def test_scaffold_sends_twice_as_much():
    plain, twice = (
        played(AFLS)[1].cost,
        played({**AFLS, "aggregation": {"use": "scaffold"}})[1].cost,
    )
    assert twice.seconds - plain.seconds == pytest.approx(2 * 0.276)
    sent = {
        (t.direction, t.kind): t.bytes
        for t in played({"aggregation": {"use": "scaffold"}})[1].transfers
    }
    ways = [(way, kind) for way in ("down", "up") for kind in ("model", "control")]
    assert sent == dict.fromkeys(ways, 4 * BYTES), (
        "a control variate goes with every model, both ways"
    )


def test_fednova_reports_four_bytes_a_client():
    sent = {
        (t.direction, t.kind): t.bytes
        for t in played({"aggregation": {"use": "nova"}})[1].transfers
    }
    assert sent == {
        ("down", "model"): 4 * BYTES,
        ("up", "model"): 4 * BYTES,
        ("up", "control"): 4 * 4,
    }


def asking(*asks):
    def rule(view, rng):
        return asks[len(view.answers)] if len(view.answers) < len(asks) else np.array([0, 1])

    return rule


def test_losses_that_a_rule_asks_for_take_time_and_spare_a_second_download():
    plain = played(AFLS, selection=asking())[1].cost
    asked = played(AFLS, selection=asking(AskLoss(np.arange(4))))[1].cost
    small = 0.276 * 4 / BYTES
    assert asked.seconds == pytest.approx(0.276 + 1 / 3 + small + (1 + 0.276)), (
        "the chosen hold the model already"
    )
    assert asked.sample_passes - plain.sample_passes == pytest.approx(SIZES.sum() / 3)
    few = played(AFLS, selection=asking(AskLoss(np.arange(4), max_examples=15)))[1].cost
    assert few.sample_passes - plain.sample_passes == pytest.approx((10 + 15 + 15 + 10) / 3)


def test_updates_and_throw_away_rounds_are_whole_rounds():
    plain = played(AFLS, selection=asking())[1].cost
    updates = played(AFLS, selection=asking(AskUpdates(np.arange(4))))[1].cost
    assert updates.seconds == pytest.approx(1.552 + 1 + 0.276)
    assert updates.sample_passes - plain.sample_passes == SIZES.sum()
    trial = played(AFLS, selection=asking(AskTrial(np.array([2, 3]))))[1].cost
    look = 0.276 + 1 / 3 + 0.276 * 4 / BYTES
    assert trial.seconds == pytest.approx(1.552 + look + 1.552)
    assert trial.sample_passes - plain.sample_passes == pytest.approx(30 + SIZES.sum() / 3)


def test_histograms_and_probes_are_charged_before_the_first_round():
    assert played(AFLS)[0].cost.seconds == 0.0
    histogram = played({**AFLS, "signal": {"use": "histogram"}})[0].cost
    assert (histogram.seconds, histogram.sample_passes) == (pytest.approx(0.276 * 8 / BYTES), 0.0)
    head = Layout.of([("head.weight", (2, 2), "weight"), ("head.bias", (2,), "weight")])
    probe = {**AFLS, "signal": {"use": "estimated", "epochs": 2, "probe": "all"}}
    cost = played(probe, layout=head)[0].cost
    assert cost.sample_passes == 2 * SIZES.sum()
    assert cost.seconds == pytest.approx(0.552 + 2), "two epochs where an ordinary turn has one"
    rounds = {"rounds": 1, "clients_per_round": 3, "min_ok": 0}
    by_round = {**probe, "run": rounds, "signal": {**probe["signal"], "probe": "cover"}}
    assert played(by_round, layout=head)[0].cost.seconds == pytest.approx(2 * (0.552 + 2)), (
        "three, then one"
    )


def test_what_is_told_in_passing_has_the_size_of_its_number():
    """A loss or a duration is a float32, a class count a uint32, an estimate of shares float32."""
    sent = report_transfers(["latency", "loss"], 3)
    assert sum(transfer.bytes for transfer in sent) == 2 * 3 * 4
    assert (COUNT_BYTES, FLOAT_BYTES, LOSS_BYTES, SHARE_BYTES) == (4, 4, 4, 4)


def test_silent_slow_and_late_clients():
    def script(c, r, m):
        return (
            Reply(None, failure="gone", sent=False)
            if c == 1
            else Reply(m, 0.5, 0.1, 1, int(SIZES[c]))
        )

    transfer = 8 * BYTES / 10e6
    silent = played({}, script=script)[1].cost
    assert silent.seconds == pytest.approx(2 * transfer + 0.03), (
        "waited for until it should have answered"
    )
    assert silent.joules == pytest.approx(30 * 0.001 * SIZES.sum() + 3 * transfer), (
        "it trained; it never sent"
    )
    slow = played({}, faults=Faults(slow_share=1.0, slow_factor=10.0))[1].cost
    assert slow.seconds == pytest.approx(2 * transfer + 0.3)
    late = Faults(slow_share=1.0, slow_factor=10.0, deadline_seconds=0.15)
    recipe = {"faults": {"deadline_seconds": 0.15, "slow_share": 1.0}}
    record = played(recipe, faults=late)[1]
    assert sorted(record.failures) == [1, 2]
    assert record.cost.seconds == pytest.approx(0.15), (
        "the server waits for the deadline after the model was sent, no longer"
    )


def test_a_deadline_counts_everything_a_turn_takes():
    """T_c = 1 s, T_m = .276 s: a turn is 1.552 s, whatever is slow; nobody trains for nothing."""
    trained = []

    def script(c, r, m):
        trained.append(c)
        return Reply(m, 0.5, 0.1, 1, int(SIZES[c]))

    def at(deadline, **more):
        recipe = {**AFLS, **more, "faults": {"deadline_seconds": deadline}}
        return played(recipe, script=script)[1]

    late = at(0.5)
    assert set(late.failures.values()) == {"missed the deadline"}
    assert sorted(late.failures) == [0, 1, 2, 3]
    assert (late.cost.seconds, trained) == (pytest.approx(0.5), [])
    assert not [t for t in late.transfers if t.direction == "up"]
    in_time = at(1.553)
    assert (in_time.failures, in_time.cost.seconds) == ({}, pytest.approx(1.552))
    assert len(at(1.551).failures) == 4, "the transfers count"


def test_a_sample_cap_saves_slow_clients_from_the_deadline():
    slow = {"faults": {"deadline_seconds": 0.5, "slow_share": 1.0, "slow_factor": 100.0}}
    everybody_slow = Faults(slow_share=1.0, slow_factor=100.0)
    assert len(played(slow, faults=everybody_slow)[1].failures) == 4
    capped = {**slow, "local": {"max_examples": 4}}
    assert played(capped, faults=everybody_slow)[1].failures == {}


def test_who_holds_the_model_has_more_time():
    recipe = {**AFLS, "faults": {"deadline_seconds": 1.3}}
    asked = played(recipe, selection=asking(AskLoss(np.arange(4))))[1]
    assert asked.failures == {}, "T_c + T_m = 1.276 s"
    assert len(played(recipe, selection=asking())[1].failures) == 2


def test_rules_learn_the_seconds_of_the_same_clock():
    seen = []

    @dataclass(frozen=True)
    class Watching(SelectionRule):
        learns_from = "none"

        def choose(self, memory, view, rng):
            return np.flatnonzero(view.available), memory

        def learn(self, memory, feedback):
            seen.append(feedback.seconds)
            return memory

    played(AFLS, selection=Watching)
    assert seen[0].tolist() == pytest.approx([1.552] * 4)


# ---------------------------------------------------------------- the account follows the models


def broken_chain(broken):
    """Three devices in a row, the second one silent."""

    def script(c, r, m):
        return Reply(None, failure="gone", sent=False) if c == 1 else Reply(m, 0.5, 0.1, 1, 10)

    def in_order(ids, view, rng):
        return Plan((Chain(0, (0, 1, 2)),), relay="d2d", broken=broken)

    devices = {**AFLS["devices"], "watts": 1e-9, "transmit_watts": 1.0}
    recipe = {"devices": devices}
    return played(recipe, counts=np.full((3, 2), 5), procedure=in_order, script=script)[1]


def test_time_energy_and_bytes_agree_on_a_broken_chain():
    """0 sends to 1, waits, sends to 2; 2 sends in: three sends of .276 s at 1 W."""
    record = broken_chain("skip")
    sent = {t.direction: t.bytes for t in record.transfers if t.kind == "model"}
    assert sent == {"down": BYTES, "d2d": 2 * BYTES, "up": BYTES}
    assert record.cost.joules == pytest.approx(3 * 0.276)
    wait = 0.276 + 1 + 0.276  # the hop to 1, and as long as it should have taken to answer
    assert record.cost.seconds == pytest.approx(0.276 + 1 + wait + 0.276 + 1 + 0.276)


def test_a_chain_that_gave_up_sends_nothing_in():
    record = broken_chain("drop")
    sent = {t.direction: t.bytes for t in record.transfers if t.kind == "model"}
    assert sent == {"down": BYTES, "d2d": BYTES}
    assert record.cost.joules == pytest.approx(0.276)
    assert record.cost.seconds == pytest.approx(0.276 + 1 + (0.276 + 1 + 0.276))


def test_a_control_variate_goes_to_those_who_hold_the_model_too():
    """SCAFFOLD after losses were asked for: the chosen hold the model, not c."""
    scaffold = {**AFLS, "aggregation": {"use": "scaffold"}}
    record = played(scaffold, selection=asking(AskLoss(np.arange(4))))[1]
    sent = {(t.direction, t.kind): t.bytes for t in record.transfers}
    assert sent["down", "control"] == 2 * BYTES
    look = 0.276 + 1 / 3 + 0.276 * 4 / BYTES
    assert record.cost.seconds == pytest.approx(look + 0.276 + 1 + 2 * 0.276)


def test_a_second_probe_takes_time_and_energy_too():
    head = Layout.of([("head.weight", (2, 2), "weight"), ("head.bias", (2,), "weight")])
    asked = []

    def script(c, r, m):
        asked.append(c)
        fails = c == 1 and asked.count(1) == 1
        return Reply(None, failure="gone", sent=False) if fails else Reply(m, 0.5, 0.1, 1, 10)

    recipe = {**AFLS, "signal": {"use": "estimated", "epochs": 1, "probe": "all"}}
    cost = played(recipe, layout=head, script=script)[0].cost
    assert cost.seconds == pytest.approx(2 * 1.552)
    assert cost.sample_passes == SIZES.sum() + SIZES[1]


# ---------------------------------------------------------------- devices


def test_devices_decide_paces_rates_and_powers():
    sizes = np.full(2000, 10)
    plain = draw_population(sizes, Devices(), 0)
    assert set(plain.seconds_per_example) == {0.001}
    assert (plain.uplink_bps, plain.trip_seconds, plain.d2d_bps) == (None, None, None)
    spread = draw_population(
        sizes,
        Devices(flops_per_example=2e6, flops_per_second=1e9, speed_spread=4.0, watts_spread=2.0),
        0,
    )
    assert 0.0005 <= spread.seconds_per_example.min() < 0.0006
    assert 0.0075 < spread.seconds_per_example.max() <= 0.008
    assert np.exp(np.log(spread.watts).mean()) == pytest.approx(30, rel=0.05)
    radio = draw_population(
        sizes, Devices(snr_db=(0.0, 30.0), bandwidth_hz=1e6, classes="haccs"), 0
    )
    assert np.allclose(radio.uplink_bps, 1e6 * np.log2(1 + radio.snr))
    haccs = draw_population(sizes, Devices(classes="haccs"), 0)
    assert np.allclose(haccs.latency_seconds, haccs.delay_seconds + 2 * haccs.trip_seconds)
    assert haccs.trip_seconds.min() >= 0.01
    assert haccs.trip_seconds.max() <= 0.1
    assert haccs.delay_seconds.max() <= 20


@pytest.mark.parametrize(
    ("devices", "message"),
    [
        ({"classes": "phones"}, "unknown clock model 'phones'"),
        ({"uplink_bps": -1.0}, "devices.uplink_bps: -1.0 is not positive"),
        ({"d2d_bps": 0.0}, "devices.d2d_bps: 0.0 is not positive"),
        ({"bandwidth_hz": 1e6}, "no rate without an SNR"),
        ({"bandwidth_hz": -1.0, "snr_db": [0, 3]}, "bandwidth_hz: -1.0 is not positive"),
        ({"bandwidth_hz": 1e6, "snr_db": [0, 3], "uplink_bps": 1e6}, "together with bandwidth_hz"),
        ({"snr_db": [30, 0]}, "not [low, high]"),
        ({"compute_seconds": -1.0}, "compute_seconds: -1.0 is out of range"),
        ({"message_seconds": float("nan")}, "message_seconds: nan is not a number"),
        ({"hop_seconds": 1.0}, "without message_seconds"),
        ({"flops_per_example": 1.0}, "needs both flops"),
        (
            {"flops_per_example": 1.0, "flops_per_second": 1.0, "seconds_per_example": 1.0},
            "together with flops",
        ),
        ({"speed_spread": 0.5}, "less than 1"),
        ({"transmit_watts": -1.0}, "transmit_watts: -1.0 is out of range"),
        ({"watts": 0.0}, "watts: 0.0 is not positive"),
        ({"uplink": "tdma"}, "'tdma' is not"),
    ],
)
def test_bad_devices_are_one_clear_line(devices, message):
    with pytest.raises(RecipeError) as caught:
        resolve({"devices": devices})
    assert message in str(caught.value)


# ---------------------------------------------------------------- measured energy


class Tally:
    """A meter that shows 1 J more at every client."""

    name = "tally"

    def __init__(self):
        self.begun, self.count = False, 0

    def start(self):
        assert not self.begun, "two clients at once"
        self.begun = True

    def stop(self, watts):
        self.begun = False
        self.count += 1
        return watts * self.count


def test_measured_clients_work_one_at_a_time_and_give_the_same_models():
    inner = ScriptedRuntime(COUNTS, population=draw_population(SIZES, Devices(watts=2.0), 0))
    metered = MeteredRuntime(inner, Tally())
    method = method_of(
        resolve(
            {
                "run": {"rounds": 2, "clients_per_round": 3},
                "selection": {"use": "power_of_choice", "d": 4},
            }
        )
    )
    plain = [state.models for state, _ in run(settle(method, inner, 0))]
    assert all(
        np.array_equal(a, s.models)
        for a, (s, _) in zip(plain, run(settle(method, metered, 0)), strict=True)
    )
    asked = 2 * (4 + 3)  # four losses and three trainings a round
    assert metered.take_joules() == 2.0 * asked * (asked + 1) / 2
    assert metered.take_joules() == 0.0
    model = inner.initial(0)[None]
    empty = metered.train(TrainOrder([], model, [], method.job, seed=0, round=1))
    assert len(empty.loss) == 0


def rapl(folder, name, energy, full=1_000_000_000):
    (folder / name).mkdir(parents=True)
    (folder / name / "energy_uj").write_text(f"{energy}\n")
    (folder / name / "max_energy_range_uj").write_text(f"{full}\n")


def test_rapl_adds_up_packages_and_survives_a_counter_that_begins_again(tmp_path):
    rapl(tmp_path, "intel-rapl:0", 500)
    rapl(tmp_path, "intel-rapl:1", 999_000_000)
    rapl(tmp_path, "intel-rapl:0:0", 7)  # a part of package 0: not counted twice
    meter = meter_for("measured", folder=tmp_path)
    assert isinstance(meter, RaplMeter)
    meter.start()
    (tmp_path / "intel-rapl:0" / "energy_uj").write_text("2000500")
    (tmp_path / "intel-rapl:1" / "energy_uj").write_text("500000")
    assert meter.stop(30.0) == 2.0 + 1.5


def test_without_readable_counters_it_is_wall_time_times_watts(tmp_path, monkeypatch):
    meter = meter_for("measured", folder=tmp_path)
    assert isinstance(meter, WallMeter)
    moments = iter([5.0, 7.5])
    monkeypatch.setattr("fedskew.accounting.energy.time.perf_counter", lambda: next(moments))
    meter.start()
    assert meter.stop(30.0) == 75.0
    rapl(tmp_path, "intel-rapl:0", "not a number")
    assert isinstance(meter_for("measured", folder=tmp_path), WallMeter)
    assert meter_for("modelled") is None


def test_codecarbon_is_used_if_it_is_there_and_missed_clearly_if_not(monkeypatch):
    monkeypatch.setitem(sys.modules, "codecarbon", None)
    with pytest.raises(
        RunError, match=r"CodeCarbon is not installed\. Run: pip install 'fedskew\[energy\]'"
    ):
        meter_for("codecarbon")

    class Tracker:
        def __init__(self, **options):
            assert options["save_to_file"] is False

        def start_task(self):
            self.started = True

        def stop_task(self):
            return types.SimpleNamespace(energy_consumed=1e-6)

    monkeypatch.setitem(
        sys.modules, "codecarbon", types.SimpleNamespace(OfflineEmissionsTracker=Tracker)
    )
    meter = meter_for("codecarbon")
    assert isinstance(meter, CodeCarbonMeter)
    meter.start()
    assert meter.stop(30.0) == pytest.approx(3.6)


def test_parts_that_are_delivered_once_cost_their_bytes_for_everybody():
    assert delivery_transfers(3, 100) == (Transfer("down", "model", 300, 100),)
    assert delivery_transfers(0, 100) == ()
    down, up = feature_transfers(3, 100, 7)
    assert (down, up) == (
        Transfer("down", "model", 300, 100), Transfer("up", "features", 21, 21),
    )  # fmt: skip
