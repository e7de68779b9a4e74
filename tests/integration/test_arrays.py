"""Arrays through the CLI, a real server and an agent: submitted by indices or a matrix, listed, ended and compared."""
import json
import os
import subprocess

import pytest

from tests import specs
from tests.cluster import BIN, Cluster, wait_for
from tests.patience import PATIENCE_S


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(str(tmp_path_factory.mktemp("arrays")), slots=2) as c:
        yield c
    assert not c.leftovers()


def muster(cluster, *args, status=0):
    env = dict(cluster.env, MUSTER_SERVER=cluster.url, MUSTER_TOKEN=cluster.token())
    out = subprocess.run([f"{BIN}/muster", *args], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                         timeout=PATIENCE_S, env=env, cwd=cluster.folder, check=False)
    assert out.returncode == status, f"muster {args}: {out.returncode}\n{out.stdout}\n{out.stderr}"
    return out.stdout


def document(cluster, *args):
    return json.loads(muster(cluster, args[0], "-o", "json", *args[1:]))


def rows(text, column=0):
    return [line.split()[column] for line in text.splitlines()[1:]]


def test_a_program_is_submitted_as_an_array_listed_in_a_line_and_ended_in_parts(cluster):
    folder = os.path.join(cluster.folder, "parts")
    os.mkdir(folder)
    wait = f"touch {folder}/begun.$MUSTER_ARRAY_INDEX; until [ -e {folder}/go ]; do sleep 0.05; done"
    array = document(cluster, "submit", "--array", "0-9%2", "--name", "parts", "--", "sh", "-c", wait)["id"]
    wait_for("two tasks", lambda: len(os.listdir(folder)) == 2)
    assert f"{array}[2-9]" in rows(muster(cluster, "list"))
    assert rows(muster(cluster, "list", "--tasks", array)) == [f"{array}.{i}" for i in range(10)]
    state = "starting,running"
    assert rows(muster(cluster, "list", "--tasks", array, "--state", state)) == [f"{array}.0", f"{array}.1"]
    muster(cluster, "cancel", f"{array}.3-8")
    muster(cluster, "cancel", f"{array}.3", status=4)
    assert f"{array}[2,9]" in rows(muster(cluster, "list"))
    assert "at most 2 running: 2 queued 2 running 6 cancelled" in muster(cluster, "show", array)
    assert muster(cluster, "limit", array, "--running", "1") == f"{array} runs at most 1 tasks at one time\n"
    assert "at most 1 running: 2 queued 2 running 6 cancelled" in muster(cluster, "show", array)
    with open(f"{folder}/go", "w", encoding="utf-8"):
        pass
    ended = cluster.wait(array, ["succeeded", "failed", "cancelled"])
    assert ended["state"] == "failed" and ended["array"]["tasks"]["cancelled"] == 6
    assert sorted(os.listdir(folder)) == ["begun.0", "begun.1", "begun.2", "begun.9", "go"]
    again = document(cluster, "retry", array, "--state", "cancelled")
    assert again["array"]["count"] == 6
    cluster.wait(again["id"], "succeeded")
    assert len(os.listdir(folder)) == 11


def test_a_matrix_fills_in_its_values_and_the_best_task_is_found(cluster):
    script = 'echo "lr=${{param.lr}} seed=$MUSTER_PARAM_SEED of $MUSTER_ARRAY_COUNT"; ' \
             'echo \'{"step": 1, "loss": ${{param.lr}}}\' >> "$MUSTER_RUN_DIR/metrics.jsonl"'
    spec = specs.command(script, name="m-${{index}}", array={"matrix": {"lr": [0.5, 0.25, 2], "seed": [1, 2]}})
    array = cluster.submit(spec)["id"]
    cluster.wait(array, "succeeded")
    said = [cluster.log_text(f"{array}.{i}") for i in range(6)]
    assert said == [f"lr={lr} seed={seed} of 6\n" for lr in (0.5, 0.25, 2) for seed in (1, 2)]
    assert [t["name"] for t in cluster.list("/v1/jobs", "jobs", f"&array={array}")] == [f"m-{i}" for i in range(6)]
    wait_for("metrics", lambda: len(document(cluster, "best", array)["tasks"]) == 6)
    best = document(cluster, "best", array, "--metric", "loss", "--min", "-n", "2")["tasks"]
    assert [(t["task"]["params"]["lr"], t["value"]) for t in best] == [(0.25, 0.25), (0.25, 0.25)]
    assert document(cluster, "best", array, "--max", "-n", "1")["tasks"][0]["task"]["params"]["lr"] == 2
    assert f"{array}.2" in muster(cluster, "best", array)
    page = cluster.api("GET", f"/v1/jobs?array={array}&metric=loss&fields=task")  # which is one request for all of them
    assert [(t["task"]["id"], t["measured"]) for t in page["jobs"]] == \
        [(f"{array}.{i}", lr) for i, lr in enumerate((0.5, 0.5, 0.25, 0.25, 2, 2))]
    page = cluster.api("GET", f"/v1/jobs?array={array}&metric=other&limit=2&cursor=3")
    assert [t["measured"] for t in page["jobs"]] == [None, None] and page["next_cursor"] == "5"
    many = cluster.submit(specs.command("true", array={"count": 120}))["id"]
    page = cluster.api("GET", f"/v1/jobs?array={many}&metric=loss&limit=1000")
    assert (len(page["jobs"]), page["next_cursor"]) == (100, "100")
    cluster.action(many, "cancel")
    for wrong in ("metric=loss", f"metric=&array={array}"):
        assert cluster.request("GET", f"/v1/jobs?{wrong}")[0] == 422


TRIAL = """at={folder}/${{{{index}}}}
step=$(cat $at 2>/dev/null || echo 0)
trap 'exit 0' TERM
while [ $step -lt 8 ]; do
    step=$((step + 1)); echo $step > $at
    echo "{{\\"step\\": $step, \\"v\\": 1, \\"loss\\": $MUSTER_PARAM_LEVEL}}" >> "$MUSTER_RUN_DIR/metrics.jsonl"
    until [ $step != 2 -a $step != 4 ] || [ -e $at.$step ]; do sleep 0.05; done
done"""


def test_a_search_by_asha_gives_its_steps_to_the_better_trials(cluster):
    folder = os.path.join(cluster.folder, "asha")
    os.mkdir(folder)
    search = {"method": "asha", "seed": 3, "first_steps": 2, "reduction": 2, "rungs": 2}
    spec = specs.command(TRIAL.format(folder=folder),
                         array={"count": 8, "search": search, "ranges": {"level": {"min": 0.0, "max": 1.0}}})
    array = cluster.submit(spec)["id"]

    def over():
        """A trial at a rung waits there for what the server makes of its line: it is suspended, or goes on."""
        for task in cluster.list("/v1/jobs", "jobs", f"&array={array}&state=running"):
            step = (task["progress"] or {}).get("step")
            if step in (2, 4) and task["reason"]["code"] != "suspending":
                with open(f"{folder}/{task['task']['index']}.{step}", "w", encoding="utf-8"):
                    pass
        return cluster.job(array)["state"] in ("succeeded", "failed", "cancelled")

    wait_for("the end of the search", over)
    tasks = cluster.list("/v1/jobs", "jobs", f"&array={array}")
    best = min(tasks, key=lambda t: t["task"]["params"]["level"])
    assert cluster.job(array)["state"] == "succeeded" and best["state"] == "succeeded", best
    steps = {}
    for task in tasks:
        with open(f"{folder}/{task['task']['index']}", encoding="utf-8") as f:
            steps.setdefault(task["state"], set()).add(int(f.read()))
    assert steps["succeeded"] == {8} and steps["cancelled"] <= {2, 4}, steps
    assert {t["reason"]["text"] for t in tasks if t["state"] == "cancelled"} == {"other trials were better"}


def test_what_is_wrong_with_an_array_is_said(cluster):
    assert cluster.muster("submit", "--array", "3-1", "--", "true").returncode == 2
    spec = specs.command("echo ${{param.rate}}", array={"matrix": {"lr": [1]}})
    status, answer = cluster.request("POST", "/v1/jobs", spec)[:2]
    assert status == 422 and "there is no 'param.rate'" in json.dumps(answer)
    status, answer = cluster.request("GET", "/v1/jobs/j1/logs")[:2]
    assert status == 409 and "name one" in json.dumps(answer)
