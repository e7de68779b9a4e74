"""What a cluster has run, exported and played again by simulate. The server is a stand-in that answers two calls."""
import contextlib
import csv
import http.server
import json
import os
import subprocess
import threading

import pytest

from tests.cluster import BIN
from tests.patience import PATIENCE_S


def job(n, submit, start, end, devices=2, most=None, **more):
    stamp = "2026-11-01T{:02}:{:02}:{:02}Z"
    at = [None if t is None else stamp.format(t // 3600, t // 60 % 60, t % 60) for t in (submit, start, end)]
    slots = [{"rank": r, "node": "n1", "slot": r, "class": "gpu"} for r in range(devices)]
    return {"id": f"j{n}", "name": "learn, fast", "project": "lab", "kind": "command", "user": "ann",
            "state": "succeeded", "priority": 50, "submitted_at": at[0], "started_at": at[1], "finished_at": at[2],
            "assignment": slots,
            "devices": {"min": 1 if most else devices, "max": most or devices, "assigned": 0}, "progress": None, **more}


JOBS = [
    job(7, 400, 401, 421, assignment=[]),
    job(6, 300, 301, 400, assignment=[{"rank": 0, "class": "gpu"}, {"rank": 1, "class": "cpu"}]),
    job(5, 200, None, 210, state="cancelled"),
    job(4, 100, 160, 400, kind="train", name="bert", most=4, progress={"step": 1200, "steps": 1200}),
    job(3, 60, 100, 160, user="bob", project="shop", priority=55),
    job(2, 30, 40, 100, devices=4),
    job(1, 0, 10, 40, devices=4),
]
NODES = [{"id": f"n{i}", "state": "ready", "slots": [{"slot": s, "class": "gpu"} for s in range(4)]} for i in (1, 2)]


@contextlib.contextmanager
def server(jobs):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            of = "jobs" if self.path.startswith("/v1/jobs") else "nodes"
            answer = {of: jobs if of == "jobs" else NODES, "next_cursor": None, "quarantine": None}
            if of == "jobs":
                assert "state=succeeded,failed,cancelled" in self.path
            text = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as at:
        threading.Thread(target=at.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{at.server_port}"
        at.shutdown()


def muster(tmp_path, *args, ok=0):
    done = subprocess.run([f"{BIN}/muster", *args], capture_output=True, text=True, timeout=PATIENCE_S, check=False,
                          cwd=tmp_path, env=dict(os.environ, MUSTER_STATE=str(tmp_path / "s"), MUSTER_TOKEN="t"))
    assert done.returncode == ok, done.stderr
    return done


def export(tmp_path, *args, jobs=None, ok=0):
    with server(JOBS if jobs is None else jobs) as url:
        return muster(tmp_path, "history", "--trace", "out", "--server", url, *args, ok=ok)


def rows(tmp_path):
    return list(csv.DictReader((tmp_path / "out/trace.csv").open()))


def test_what_ran_is_exported_and_what_is_left_out_is_said(tmp_path):
    done = export(tmp_path)
    assert "4 jobs; left out: 1 that never ran, 1 whose devices are not known, 1 on two classes" in done.stderr
    of = {row["id"]: row for row in rows(tmp_path)}
    assert list(of) == ["j1", "j2", "j3", "j4"], "by age"
    assert of["j1"]["submit_s"] == "0.000000" and of["j4"]["submit_s"] == "100.000000"
    assert of["j1"]["total_steps"] == "30" and of["j1"]["job_type"] == "ann/learn_ fast/4"
    assert (of["j4"]["total_steps"], of["j4"]["min_devices"], of["j4"]["max_devices"]) == ("1200", "1", "4")
    assert float(of["j3"]["weight"]) == pytest.approx(1.149, abs=1e-3) and of["j3"]["tenant"] == "shop"
    assert json.loads((tmp_path / "out/cluster.json").read_text()) == {
        "classes": {"gpu": {"nodes": 2, "devices_per_node": 4}}, "tenants": {"lab": {}, "shop": {}}}
    rates = json.loads((tmp_path / "out/throughputs.json").read_text())
    assert rates["ann/bert"] == {"gpu": {"2": 5.0}} and rates["ann/learn_ fast/4"]["gpu"]["4"] == 1.0


@pytest.mark.parametrize("policy", ["muster", "fifo", "las"])
def test_an_exported_history_is_played_by_any_policy(tmp_path, policy):
    again = export(tmp_path).stdout.split()
    played = json.loads(muster(tmp_path, *again[1:], "--policy", policy, "-o", "json").stdout)
    assert played["jobs_done"] == 4
    took = {j["id"]: j["finish_s"] - j["start_s"] for j in played["jobs"]}
    assert took["j1"] == pytest.approx(30, abs=0.5) and took["j2"] == pytest.approx(60, abs=0.5), "as long as they ran"


def test_pseudonyms_hide_users_projects_and_names(tmp_path):
    export(tmp_path, "--pseudonyms")
    text = "".join((tmp_path / "out" / name).read_text() for name in ("trace.csv", "cluster.json", "throughputs.json"))
    for name in "ann", "bob", "lab", "shop", "learn", "bert":
        assert name not in text, name
    assert rows(tmp_path)[0]["tenant"] == rows(tmp_path)[1]["tenant"] != rows(tmp_path)[2]["tenant"]


def test_a_cluster_that_has_run_nothing_says_so(tmp_path):
    assert "nothing to export" in export(tmp_path, jobs=[]).stderr
    assert not (tmp_path / "out").exists()
