"""muster simulate sequence: plans of batches without a server, a device or a run."""
import json
import os
import subprocess

import pytest

from tests.patience import PATIENCE_S

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.path.join(ROOT, os.environ.get("MUSTER_BUILD", "build"), "bin")


def simulate(*args, stdin=""):
    return subprocess.run([f"{BIN}/muster", "simulate", "sequence", *args], capture_output=True, text=True,
                          timeout=PATIENCE_S, input=stdin)


def document(*args, stdin=""):
    out = simulate(*args, "-o", "json", stdin=stdin)
    assert out.returncode == 0, out.stderr
    return json.loads(out.stdout)


def test_every_policy_is_compared_and_the_default_is_best():
    doc = document("--workload", "lmsys", "--batches", "2")
    rho = {p["policy"]: p["rho"] for p in doc["policies"]}
    assert len(rho) == 10 and "plans" not in doc
    assert rho["sweep"] == min(rho.values()) and all(r >= 1 for r in rho.values())
    assert all(p["peak_share"] <= 1 for p in doc["policies"])


@pytest.mark.parametrize("policy", ["pad", "sorted", "pack", "skrull", "sweep", "chunk"])
def test_a_printed_plan_holds_every_token_once(policy):
    lengths = [3000, 17, 250, 9000, 1, 800, 800, 41]
    text = "".join(f"{n}\n" for n in lengths)
    doc = document("-", "--policy", policy, "--ranks", "2", "--replicas", "2", "--capacity", "4608", stdin=text)
    [plan] = doc["plans"]
    seen = {}
    assert len(plan["plan"]) == 2
    for replica in plan["plan"]:
        assert len(replica) == plan["micro_batches"]
        for micro in replica:
            assert len(micro["rank_tokens"]) == 2 and max(micro["rank_tokens"]) == micro["peak_tokens"] <= 4608
            for piece in micro["pieces"]:
                assert piece["start"] == seen.get(piece["sequence"], 0)
                seen[piece["sequence"]] = piece["start"] + piece["tokens"]
    assert [seen[i] for i in range(len(lengths))] == lengths


def test_a_file_is_read_and_what_no_group_holds_is_cut_and_counted(tmp_path):
    (tmp_path / "lengths").write_text("100\n99999\n\n5\n")
    out = simulate(str(tmp_path / "lengths"), "--capacity", "1000", "--ranks", "4")
    assert out.returncode == 0 and "1 of 3 sequences are longer than a group holds" in out.stdout
    assert out.stdout.count("\n") == 12


@pytest.mark.parametrize("args,stdin,status,says", [
    (["-"], "100\nx\n", 1, "standard input line 2"),
    (["-"], "0\n", 1, "want a length from 1"),
    (["-"], "\n", 1, "holds no length"),
    (["/nowhere"], "", 1, "/nowhere"),
    (["-", "--workload", "lmsys"], "1\n", 2, "not from both"),
    (["--workload", "lmsyss"], "", 2, "chatqa2"),
    (["--policy", "sweeep"], "", 2, "no policy 'sweeep'"),
    (["--model", "1,2"], "", 2, "896,128,24"),
    (["--ranks", "0"], "", 2, "--ranks"),
    (["--policy", "chunk", "--chunk-tokens", "100"], "", 1, "multiple of 16"),
])
def test_bad_input_is_refused_by_name(args, stdin, status, says):
    out = simulate(*args, stdin=stdin)
    assert out.returncode == status and says in out.stderr, out
