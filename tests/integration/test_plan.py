"""The planner: offline, through the server, and against what ranks then count and measure."""
import glob
import json
import os
import re
import subprocess

import pytest

from tests import specs
from tests.cluster import BIN, Cluster, wait_for
from tests.patience import PATIENCE_S

CLUSTER = {"classes": {"fast": {"nodes": 2, "devices_per_node": 4, "kind": "cpu", "memory_mib": 2000}}}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return specs.write_corpus(str(tmp_path_factory.mktemp("corpus") / "corpus.txt"))


def write(folder, name, doc):
    path = os.path.join(str(folder), name)
    with open(path, "w", encoding="ascii") as f:
        json.dump(doc, f)
    return path


def muster(*args, ok=0):
    out = subprocess.run([f"{BIN}/muster", *args], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert out.returncode == ok, out.stderr + out.stdout
    return out


def planned(folder, spec, *args):
    out = muster("plan", write(folder, "spec.json", spec), "--cluster", write(folder, "cluster.json", CLUSTER),
                 "-o", "json", *args)
    return json.loads(out.stdout)["plan"]


def rank_memory(folder):
    """MiB that each rank counted before its first step, by its place in the pipeline."""
    found = {}
    for log in glob.glob(f"{folder}/run-g1/rank-*.log"):
        with open(log, encoding="ascii") as f:
            text = f.read()
        place = int(re.search(r"pp (\d+)/", text).group(1))
        found[place] = max(found.get(place, 0), float(re.search(r"memory:.* all ([\d.]+) MiB", text).group(1)))
    return [found[k] for k in sorted(found)]


@pytest.mark.parametrize("parallel", [
    {"tp": 1, "pp": 1},
    {"tp": 2, "pp": 2, "schedule": "interleaved", "chunks": 2, "recompute": "selective"},
    {"tp": 1, "pp": 4, "schedule": "zb-h1", "layers": [1, 1, 1, 1]},
    {"tp": 2, "pp": 2, "recompute": "full", "recompute_layers": [2, 1]},
])
def test_ranks_count_the_memory_that_was_planned(tmp_path, corpus, parallel):
    spec = specs.train(corpus, steps=5, devices=4)
    spec["parallel"] = {"virtual_workers": 4, **parallel}
    plan = planned(tmp_path, spec, "--devices", "4")
    muster("run", f"{tmp_path}/spec.json", "--devices", "4", "--dir", f"{tmp_path}/out")
    counted = rank_memory(f"{tmp_path}/out")
    assert len(counted) == parallel["pp"]
    assert [m["all"] for m in plan["memory_mib"]] == pytest.approx(counted, abs=0.11)


def test_what_does_not_fit_is_refused_with_numbers(tmp_path, corpus):
    spec = specs.train(corpus)
    spec["train"]["model"].update(vocab=200000, hidden=1024)
    spec["parallel"] = "auto"
    small = {"classes": {"tiny": {"nodes": 1, "devices_per_node": 2, "kind": "cpu", "memory_mib": 512}}}
    out = muster("plan", write(tmp_path, "spec.json", spec), "--cluster", write(tmp_path, "small.json", small),
                 "--devices", "2", ok=4)
    assert "no layout fits" in out.stderr and "GiB" in out.stderr


def test_a_plan_says_what_it_beat_and_why(tmp_path, corpus):
    spec = specs.train(corpus, devices=8)
    spec["parallel"] = "auto"
    plan = planned(tmp_path, spec)
    layout = plan["layout"]
    assert layout["tp"] * layout["pp"] * layout["dp"] == plan["devices"] == 8
    assert plan["step_ms"] == pytest.approx(sum(plan["breakdown_ms"].values()), rel=1e-4)
    assert plan["alternatives"] and all(a["why"] for a in plan["alternatives"])
    assert all(a["step_ms"] >= 0.97 * plan["step_ms"] for a in plan["alternatives"] if a["fits"])
    text = muster("plan", f"{tmp_path}/spec.json", "--cluster", f"{tmp_path}/cluster.json").stdout
    assert "the spec is good; it would run as tp" in text and "it beat" in text and "STAGE" in text


def test_a_measured_profile_goes_before_assumed_rates(tmp_path, corpus):
    spec = specs.train(corpus, devices=2)
    spec["parallel"] = {"tp": 1, "pp": 1, "virtual_workers": 2}
    path = write(tmp_path, "spec.json", spec)
    kept = tmp_path / "cache" / "profile.json"
    command = [f"{BIN}/muster-train", "--profile", "--devices", "2", "--quick", "--keep", kept]
    profile = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert json.loads(kept.read_text()) == profile
    assert profile["version"] == 1 and profile["side_by_side"] == 2 and profile["quick"]
    assert {"products", "bf16_products", "attention", "ops", "all_reduce", "messages", "program_mib"} <= set(profile)

    def plan(profile):
        doc = {"classes": {"cpu": {"nodes": 1, "devices_per_node": 2, "kind": "cpu", "profile": profile}}}
        words = ("plan", path, "--cluster", write(tmp_path, "cluster.json", doc))
        return json.loads(muster(*words, "-o", "json").stdout)["plan"], muster(*words).stdout

    first, words = plan(profile)
    assert first["rates"] == "measured" and "assumed" not in words
    slower = dict(profile, products=[row[:3] + [rate / 100 for rate in row[3:]] for row in profile["products"]])
    assert plan(slower)[0]["step_ms"] > 2 * first["step_ms"]
    larger = plan(dict(profile, program_mib=profile["program_mib"] + 100))[0]["memory_mib"][0]["all"]
    assert larger == pytest.approx(first["memory_mib"][0]["all"] + 100, abs=0.2)
    assumed, words = plan({"threads": 1})
    assert assumed["rates"] == "assumed" and "has no profile" in words
    doc = {"classes": {"cpu": {"nodes": 1, "devices_per_node": 2, "profile": {"products": [[1, 2, 3]]}}}}
    out = muster("plan", path, "--cluster", write(tmp_path, "bad.json", doc), ok=2)
    assert "'products' of the profile" in out.stderr


@pytest.mark.parametrize("change,named", [
    ({"class": {"gflop": 100}}, "gflop"), ({"bandwith": {}}, "bandwith"),
    ({"bandwidth": {"inside": {"bytes_per_second": 1e9}}}, "bytes_per_second"),
    ({"bandwidth": {"beyond": {}}}, "beyond"),
])
def test_a_cluster_file_with_a_field_that_nobody_knows_is_refused(tmp_path, corpus, change, named):
    more = dict(change)
    doc = linked(**more.pop("class", {})) | more
    path = write(tmp_path, "spec.json", specs.train(corpus, devices=2))
    out = muster("plan", path, "--cluster", write(tmp_path, "c.json", doc), ok=2)
    assert f"unknown field '{named}'" in out.stderr


def test_an_idle_agent_measures_its_devices_and_the_server_plans_by_that(tmp_path, corpus, monkeypatch):
    engine = tmp_path / "quick"
    engine.write_text(f"#!/bin/sh\nexec {BIN}/muster-train \"$@\" --quick\n")
    engine.chmod(0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with Cluster(str(tmp_path), slots=2, agent_args=["--profile-idle", "1", "--train", str(engine)]) as cluster:
        listed = wait_for("a profile", lambda: json.loads(cluster.muster("profile", "list", "-o", "json").stdout)
                          ["profiles"])
        assert [(p["class"], p["nodes"]) for p in listed] == [("cpu", 1)]
        assert json.loads(cluster.muster("profile", "show", "cpu").stdout) == listed[0]["profile"]
        assert listed[0]["profile"]["side_by_side"] == 2
        spec = specs.train(corpus, devices=2)
        plan = cluster.api("POST", "/v1/jobs?dry_run=1", spec)["plan"]
        assert plan["rates"] == "measured"
        assert os.path.exists(os.path.join(cluster.agent_state(), "profiles.json"))


TWO = {"classes": {"new": {"nodes": 2, "devices_per_node": 4, "gflops": 10000, "memory_mib": 40960},
                   "old": {"nodes": 1, "devices_per_node": 4, "gflops": 4000, "memory_mib": 16384}}}


def test_a_plan_over_two_classes_gives_the_slower_one_fewer_layers(tmp_path, corpus):
    spec = specs.train(corpus, devices=12)
    spec["devices"]["min"] = 4
    spec["train"]["model"] = {"family": "llama", "layers": 32, "hidden": 1024, "heads": 16, "ffn": 2816,
                              "context": 1024, "vocab": 1024}
    spec["train"]["batch"] = {"sequences": 64}
    spec["parallel"] = "auto"
    words = ("plan", write(tmp_path, "spec.json", spec), "--cluster", write(tmp_path, "two.json", TWO), "--class")
    plan = json.loads(muster(*words, "new=8,old=4", "-o", "json").stdout)["plan"]
    layers, pp = plan["layers"], plan["layout"]["pp"]
    assert pp % 3 == 0 and plan["layout"]["dp"] * pp == 12, "all twelve devices"
    assert sum(layers) == 32 and layers[-1] < layers[0]
    assert [m["limit"] for m in plan["memory_mib"]] == [40960] * (pp - pp // 3) + [16384] * (pp // 3)
    alone = json.loads(muster(*words, "new", "--devices", "8", "-o", "json").stdout)["plan"]
    assert plan["step_ms"] < 0.97 * alone["step_ms"]
    assert "LAYERS" in muster(*words, "new=8,old=4").stdout
    spec["parallel"] = {"pp": 3, "virtual_workers": 4, "layers": [10, 10, 12]}  # which its owner wants
    write(tmp_path, "spec.json", spec)
    fixed = json.loads(muster(*words, "new=8,old=4", "-o", "json").stdout)["plan"]
    assert fixed["layers"] == [10, 10, 12] and fixed["step_ms"] > plan["step_ms"]
    assert "--class names 'new' twice" in muster(*words, "new=4,new=4", ok=2).stderr
    assert "class 'old' has 4 devices, fewer than 5" in muster(*words, "new=8,old=5", ok=4).stderr


def linked(**more):
    return {"classes": {"a100": {"nodes": 4, "devices_per_node": 1, "gflops": 15000, "memory_mib": 81920, **more}}}


def test_replicas_are_laid_within_a_family_of_nics(tmp_path, corpus):
    spec = specs.train(corpus, devices=4)
    spec["parallel"] = {"tp": 1, "pp": 2, "virtual_workers": 4}
    path = write(tmp_path, "spec.json", spec)
    mixed = write(tmp_path, "mixed.json", linked(nic=["roce", "ethernet"] * 2, nic_bytes_per_s=1e10))
    plan = json.loads(muster("plan", path, "--cluster", mixed, "--devices", "4", "-o", "json").stdout)["plan"]
    laid = plan["dedication"]
    assert (laid["mixed_groups"], laid["mixed_groups_in_order"]) == (0, 2)
    assert sorted(n % 2 for n in laid["order"][:2]) in ([0, 0], [1, 1]), laid["order"]
    assert plan["step_ms"] < laid["step_ms_in_order"]
    words = muster("plan", path, "--cluster", mixed, "--devices", "4").stdout
    assert " in the order of ranks; 0 groups of replicas" in words and "slow links matter least" in words


def test_ranks_are_laid_on_nodes_as_their_measured_links_suit_best(tmp_path, corpus):
    spec = specs.train(corpus, devices=4)
    spec["parallel"] = {"tp": 1, "pp": 4, "virtual_workers": 4}
    path = write(tmp_path, "spec.json", spec)
    fast = [{0, 2}, {2, 1}, {1, 3}]  # of all pairs these alone; the pipeline goes along them
    measured = linked()
    measured["bandwidth"] = {"nodes": {"a100": [[1e10 if {a, b} in fast else 1e8 for b in range(4)]
                                                for a in range(4)]}}
    plan = json.loads(muster("plan", path, "--cluster", write(tmp_path, "measured.json", measured), "--devices", "4",
                             "-o", "json").stdout)["plan"]
    assert plan["dedication"]["order"] in ([0, 2, 1, 3], [3, 1, 2, 0])
    measured["bandwidth"]["nodes"]["a100"].pop()
    out = muster("plan", path, "--cluster", write(tmp_path, "short.json", measured), "--devices", "4", ok=2)
    assert "a row for each node" in out.stderr
    unknown = write(tmp_path, "unknown.json", linked(nic="token-ring"))
    assert "'nic' wants infiniband" in muster("plan", path, "--cluster", unknown, "--devices", "4", ok=2).stderr


def open_spec(corpus, least, most, **extra):
    spec = specs.train(corpus, steps=200, **extra)
    spec["devices"] = {"min": least, "max": most}
    spec["parallel"] = {"tp": "auto", "pp": "auto", "recompute": "auto", "virtual_workers": 2}
    return spec


def test_auto_is_settled_at_the_start_and_kept_for_life(tmp_path, corpus):
    with Cluster(str(tmp_path), slots=4, server_args=["--hold", "0", "--round", "1"], hold_at=50) as cluster:
        dry = cluster.api("POST", "/v1/jobs?dry_run=1", open_spec(corpus, 2, 4))["plan"]
        assert dry["fits"] and dry["layout"]["tp"] * dry["layout"]["pp"] * dry["layout"]["dp"] == dry["devices"]
        spec = open_spec(corpus, 2, 4)
        job = cluster.submit(spec)["id"]
        seen = wait_for("a measured step", lambda: (j := cluster.job(job))["plan"] and
                        j["plan"]["measured_step_ms"] and j)
        plan = seen["plan"]
        assert plan["layout"] == seen["layout"] and plan["predicted_step_ms"] > 0
        assert plan["error_percent"] == pytest.approx(
            100 * (plan["predicted_step_ms"] / plan["measured_step_ms"] - 1))
        events = cluster.api("GET", f"/v1/jobs/{job}/events")["events"]
        told = [e["data"]["plan"] for e in events if e["type"] == "state" and (e.get("data") or {}).get("plan")]
        assert told and told[0]["settled"] == plan["settled"] and told[0]["why"]
        others = 2 if seen["devices"]["assigned"] == 4 else 4
        cluster.api("PATCH", f"/v1/jobs/{job}", {"devices": {"min": others, "max": others}})
        grown = wait_for("the job on other devices", lambda: (j := cluster.job(job))["generation"] > 1 and
                         j["state"] in ("running", "succeeded") and j)
        assert grown["plan"]["settled"] == plan["settled"] and grown["layout"]["dp"] != seen["layout"]["dp"]
        shown = cluster.muster("show", job).stdout
        assert "ms a step predicted" in shown
        cluster.api("POST", f"/v1/jobs/{job}/cancel")


def test_a_run_keeps_its_replicas_on_nodes_of_one_family_of_nics(tmp_path, corpus):
    families = {"n1": "roce", "n2": "ethernet", "n3": "roce", "n4": "ethernet"}
    with Cluster(str(tmp_path), slots=0) as cluster:
        for node, family in families.items():
            cluster.agent_args = ["--nic", f"{family}@10"]
            cluster.start_agent(node, "cpu:1")
        cluster.wait_nodes(list(families))
        told = {n["id"]: n["nic"] for n in cluster.api("GET", "/v1/nodes")["nodes"]}
        assert told["n1"] == {"family": "roce", "gbit_s": 10} and told["n2"]["family"] == "ethernet"
        spec = specs.train(corpus, steps=5000, devices=4)
        spec["parallel"] = {"tp": 1, "pp": 2, "virtual_workers": 4}
        job = cluster.submit(spec)["id"]
        runs = wait_for("a step", lambda: (j := cluster.job(job))["state"] == "running" and j["progress"] and
                        j["progress"]["step"] > 0 and j)
        assert runs["layout"] == {"tp": 1, "pp": 2, "dp": 2, "cp": 1}
        laid = [families[rank["node"]] for rank in sorted(runs["assignment"], key=lambda rank: rank["rank"])]
        assert laid[0] == laid[1] != laid[2] == laid[3], laid
        assert runs["plan"]["dedication"]["mixed_groups"] == 0 < runs["plan"]["dedication"]["mixed_groups_in_order"]
        cluster.api("POST", f"/v1/jobs/{job}/cancel")
