"""The report's data: complete, small at any size, escaped, and nothing shown that is not a run."""

from __future__ import annotations

import base64
import json
import re
import shutil

import numpy as np
from played import write_run
from typer.testing import CliRunner

from fedskew.cli import main as cli
from fedskew.compare.comparison import Comparison
from fedskew.errors import FedskewError
from fedskew.report.page import page_html, payload_of, save_page

runner = CliRunner()
NASTY = '</script><img src=x onerror="document.title=1"><!--'


def two_methods(root, **options):
    for name, level in (("fedavg", 0.7), ("ours", 0.9)):
        for seed in (0, 1, 2):
            write_run(
                root / name / f"seed-{seed}",
                name,
                seed,
                level=level,
                local={"lr": level},
                **options,
            )
    return Comparison.read(root / "fedavg", root / "ours")


def error_of(*arguments):
    result = runner.invoke(cli.app, [str(a) for a in arguments])
    assert isinstance(result.exception, FedskewError), (result.output, result.exception)
    assert "\n" not in str(result.exception)
    return str(result.exception)


def embedded_of(page):
    return json.loads(
        re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1]
    )


# ---------------------------------------------------------------- content


def test_everything_a_report_promises_is_in_it(tmp_path):
    payload = embedded_of(
        page_html(
            payload_of(
                two_methods(tmp_path), target=0.3, budget="bytes", commands=["fedskew compare x"]
            )
        )
    )
    assert [method["label"] for method in payload["methods"]] == ["fedavg", "ours"]
    run = payload["methods"][0]["runs"][0]
    assert set(run["series"]) == {"round", "accuracy", "loss", "bytes", "time", "energy"}
    assert len(run["series"]["round"]) == 7
    assert len(run["accuracies"]) == 12
    assert run["ledger"][0][:2] == ["down", "model"]
    assert len(payload["federation"]["heat"]["shares"]) == 12
    assert [fact[0] for fact in payload["federation"]["facts"][:4]] == [
        "clients",
        "examples",
        "classes",
        "HD",
    ]
    assert payload["commands"][0] == "fedskew compare x"
    assert "fedskew run ours.toml --seeds 0,1,2" in payload["commands"]
    assert "lr = 0.9" in payload["methods"][1]["recipe"]
    assert "bytes to 0.3" in [column["title"] for column in payload["table"]["columns"]]


def test_it_opens_with_the_verdict_and_the_numbers_of_the_picture(tmp_path):
    found = two_methods(tmp_path)
    payload = embedded_of(page_html(payload_of(found, target=0.3, budget="bytes")))
    assert " ".join(payload["verdict"]) == found.verdict(target=0.3, budget="bytes")
    assert payload["target"] == 0.3
    row = found.table().rows[1]
    costs = payload["costs"]
    assert costs["judged"] == "final"
    for key in ("final", "client_accuracy", "worst10", "bytes", "time", "energy"):
        estimate = row.estimates[key]
        assert costs["methods"][1][key] == [estimate.mean, estimate.low, estimate.high]


def test_what_is_not_plain_english_is_explained_where_it_stands(tmp_path):
    payload = payload_of(two_methods(tmp_path))
    meanings = {column["title"]: column["meaning"] for column in payload["table"]["columns"]}
    assert all(meanings[title] for title in ("AD", "SDAD", "Jain", "worst tenth"))
    facts = {name: meaning for name, _, _, meaning in payload["federation"]["facts"]}
    assert all(facts[name] for name in ("HD", "JSD", "WPSI", "omega", "size Gini"))


def test_methods_that_coincide_are_told_to_the_page(tmp_path):
    for lr, name, level in ((0.1, "fedavg", 0.7), (0.2, "ours", 0.9), (0.3, "twin", 0.7)):
        for seed in (0, 1):
            folder = tmp_path / name / f"seed-{seed}"
            write_run(folder, name, seed, level=level, mark="same", local={"lr": lr})
    payload = payload_of(Comparison.read(tmp_path))
    twins = {method["label"]: method["twins"] for method in payload["methods"]}
    assert twins == {"fedavg": ["twin"], "ours": [], "twin": ["fedavg"]}
    assert "fedavg and twin coincide" in " ".join(payload["notes"])


def test_all_planned_runs_are_counted(tmp_path):
    write_run(tmp_path / "a" / "seed-0")
    write_run(tmp_path / "a" / "seed-1", seed=1, until=2)
    found = Comparison.read(tmp_path)
    assert payload_of(found)["progress"] == {"runs": 2, "finished": 1}
    assert payload_of(found, planned=6)["progress"] == {"runs": 6, "finished": 1}


def test_the_raster_says_who_was_chosen_when(tmp_path):
    found = two_methods(tmp_path)
    run = found.entries[0].runs[0]
    raster = payload_of(found)["methods"][0]["runs"][0]["chosen"]
    cells = np.frombuffer(base64.b64decode(raster["data"]), np.uint8).reshape(
        raster["bands"], raster["columns"]
    )
    for t, played in enumerate(run.rounds[1:]):
        chosen = {client for chain in played.chains for client in chain.clients}
        assert {int(c) for c in np.array(raster["clients"])[cells[:, t] == 255]} == chosen
    assert cells.sum() == 255 * 6 * 3


def test_runs_are_sorted_by_their_own_clusters(tmp_path):
    write_run(tmp_path / "a", cluster=True)
    raster = payload_of(Comparison.read(tmp_path / "a"))["methods"][0]["runs"][0]["chosen"]
    groups = raster["clusters"].tolist()
    assert groups == sorted(groups, key=groups.index)  # every cluster in one piece
    assert "own clusters" in raster["how"]


def test_ten_thousand_clients_stay_small(tmp_path):
    write_run(tmp_path / "a", clients=10_000, rounds=2, budget=2000)
    save_page(Comparison.read(tmp_path), tmp_path / "page.html")
    payload = embedded_of((tmp_path / "page.html").read_text())
    run = payload["methods"][0]["runs"][0]
    assert (run["chosen"]["bands"], len(run["accuracies"])) == (400, 400)
    assert len(payload["federation"]["heat"]["shares"]) <= 440
    assert run["plan"]["1"][-1] == [-1, [1000]]  # half of the chains are not drawn, and it says so
    assert (tmp_path / "page.html").stat().st_size < 1_500_000


def test_a_page_asks_nobody_for_anything(tmp_path):
    page = page_html(payload_of(two_methods(tmp_path)))
    assert not re.search(r'(src|href)="(?!data:,|#)', page)
    assert "connect-src 'none'" in page
    assert "default-src 'none'" in page
    assert not re.search(r"@import|url\(", page)


# ---------------------------------------------------------------- text from strangers


def test_markup_in_names_cannot_come_alive(tmp_path):
    names = [f"{NASTY}{i}" for i in range(12)]
    write_run(tmp_path / "a", NASTY, names=names, failing=NASTY)
    page = page_html(payload_of(Comparison.read(tmp_path / "a"), commands=[NASTY]))
    assert NASTY not in page
    assert "<img" not in page
    assert page.count("</script>") == 2  # the data's and the program's own
    payload = embedded_of(page)
    assert payload["federation"]["names"] == names
    assert payload["methods"][0]["label"] == NASTY
    assert payload["methods"][0]["runs"][0]["failures"]["reasons"] == [[NASTY, 2]]


def test_scripts_never_write_markup():
    from fedskew.report.page.html import _file, scripts

    for name in scripts():
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", _file(name)
        ), name


# ---------------------------------------------------------------- bad input


def test_folders_that_are_no_runs(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    assert "is not a run folder and holds none" in error_of("report", tmp_path / "empty")
    assert "is a file" in error_of("report", tmp_path / "file")
    assert "does not exist" in error_of("report", tmp_path / "nowhere")


def test_mixed_federations_are_refused(tmp_path):
    write_run(tmp_path / "a")
    write_run(tmp_path / "b", clients=13)
    assert "differs from" in error_of(
        "report", tmp_path / "a", tmp_path / "b", "-o", tmp_path / "r.html"
    )
    assert not (tmp_path / "r.html").exists()


def test_a_run_still_going_is_shown_and_marked(tmp_path):
    write_run(tmp_path / "a" / "seed-0")
    write_run(tmp_path / "a" / "seed-1", seed=1, until=4)
    done = runner.invoke(cli.app, ["report", str(tmp_path / "a"), "-o", str(tmp_path / "r.html")])
    assert done.exit_code == 0, done.output
    payload = embedded_of((tmp_path / "r.html").read_text())
    assert [run["finished"] for run in payload["methods"][0]["runs"]] == [True, False]
    assert "round 4 of 6" in payload["notes"][0]


def test_only_runs_still_going_have_no_table_yet(tmp_path):
    write_run(tmp_path / "a", until=2)
    assert payload_of(Comparison.read(tmp_path / "a"))["table"] is None


def test_a_half_written_record_is_passed_over_and_a_damaged_one_is_an_error(tmp_path):
    write_run(tmp_path / "a", until=4)
    path = tmp_path / "a" / "rounds.jsonl"
    whole = path.read_text()
    path.write_text(whole[:-30])
    assert len(Comparison.read(tmp_path / "a").entries[0].runs[0].rounds) == 4
    path.write_text("{half\n" + whole)
    assert "rounds.jsonl:1: damaged record" in error_of("report", tmp_path / "a")


def test_damaged_label_counts_are_an_error_and_missing_ones_are_dealt_again(tmp_path):
    write_run(tmp_path / "a")
    (tmp_path / "a" / "labels.json").write_text(
        '{"classes": ["x"], "clients": null, "rows": [[7, 1]]}'
    )
    assert "labels.json: is not the file that the run left" in error_of("report", tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    (tmp_path / "b" / "labels.json").unlink()
    # not the clients of its recipe: no card
    assert payload_of(Comparison.read(tmp_path / "b"))["federation"] is None


def test_nonsense_on_the_command_line(tmp_path):
    write_run(tmp_path / "a")
    assert "'bits' is not a resource" in error_of("report", tmp_path / "a", "--budget", "bits")
    assert "not an accuracy" in error_of("report", tmp_path / "a", "--target", "90")
    assert "there is no method 'nobody'" in error_of(
        "report", tmp_path / "a", "--baseline", "nobody"
    )
    assert "is a folder" in error_of("report", tmp_path / "a", "-o", tmp_path)
    assert "nothing is asked for" in error_of("export", tmp_path / "a")
    (tmp_path / "file").write_text("x")
    assert "Choose another file" in error_of(
        "report", tmp_path / "a", "-o", tmp_path / "file" / "r.html"
    )
