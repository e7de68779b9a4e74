"""What README and docs/ show is tried: shell lines of `muster` on a real cluster, specs by the server, documents by
the programs that read or write them."""
import contextlib
import glob
import http.server
import json
import os
import re
import shlex
import shutil
import subprocess
import threading

import pytest
import yaml

from tests import specs
from tests.cluster import BIN, ENDED, MARK, ROOT, Cluster, command_line, marked, wait_for
from tests.integration.fake_agent import FakeAgent
from tests.patience import PATIENCE_S
from tests.store import store_of
from tests.web_programs import make_programs

PAGES = ["README.md", *sorted(os.path.relpath(p, ROOT) for p in glob.glob(f"{ROOT}/docs/*.md"))]
STEPS = 200  # so that there is a step-00000200, as in the examples
# Which are of jobs that have not ended.
LIVE = ("suspend", "resume", "cancel", "priority", "scale", "limit", "checkpoint now", "diagnose", "exec", "attach",
        "port-forward", "what-if")


def blocks(page, language):
    """The blocks of a page in a language, each with its first line's number."""
    with open(os.path.join(ROOT, page), encoding="utf-8") as f:
        text = f.read()
    return [(text.count("\n", 0, m.start()) + 2, m.group(2))
            for m in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S) if m.group(1) == language]


def named(found):
    return [pytest.param(*rest, id=f"{page}:{line}") for page, line, *rest in found]


def shell_lines():
    """Lines that call muster, of all blocks but README's, which is run as a whole."""
    for page in PAGES:
        for at, text in blocks(page, "sh"):
            if "<<'YAML'" in text:
                continue
            for i, line in enumerate(text.splitlines()):
                if re.match(r"(source <\()?muster (?!up|down)", line):
                    yield page, at + i, line


def write(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text if isinstance(text, str) else json.dumps(text))
    return path


def run(script, folder, env, seconds=PATIENCE_S):
    """A script as a person would type it, each line of which must succeed."""
    env = dict(env, PATH=f"{BIN}:{env['PATH']}")
    out = subprocess.run(["bash", "-euc", script], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                         errors="replace", timeout=seconds, env=env, cwd=folder, check=False)
    assert out.returncode == 0, f"{script}\nends with {out.returncode}\n{out.stdout}\n{out.stderr}"
    return out.stdout


class Taking(http.server.BaseHTTPRequestHandler):
    """Of a receiver of notices that takes all of them."""

    def do_POST(self):  # pylint: disable=invalid-name
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *args):  # pylint: disable=arguments-differ
        pass


@contextlib.contextmanager
def receiving():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Taking) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


class Place:
    """A cluster, and a folder that holds the files that the examples name."""

    def __init__(self, cluster, receiver):
        self.cluster, self.folder = cluster, os.path.join(cluster.folder, "place")
        self.receiver = receiver
        self.env = dict(cluster.env, MUSTER_SERVER=cluster.url, MUSTER_TOKEN=cluster.token())
        os.mkdir(self.folder)
        self.corpus = specs.write_corpus(os.path.join(self.folder, "corpus.txt"), documents=120)
        self.job, self.other = (self.submit(specs.train(self.corpus, steps=STEPS, every_steps=100)) for _ in range(2))
        for job in (self.job, self.other):
            cluster.wait(job, "succeeded")
        write(self.folder, "job.yaml", yaml.safe_dump(specs.train(self.corpus, steps=10, virtual_workers=4)))
        write(self.folder, "plots.ipynb", {"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
        write(self.folder, "hf.token", "hf_0123456789\n")
        shutil.copy(f"{ROOT}/examples/train.sbatch", self.folder)
        write(self.folder, "lengths.txt", "".join(f"{17 * i % 900 + 8}\n" for i in range(400)))
        trace = blocks("docs/simulator.md", "")[0][1]
        machines, rates = (text for _, text in blocks("docs/simulator.md", "json"))
        for trace_name, machines_name, rates_name in (("jobs.csv", "cluster.json", "rates.json"),
                                                      ("t.csv", "c.json", "p.json")):
            write(self.folder, trace_name, trace)
            write(self.folder, machines_name, machines)
            write(self.folder, rates_name, rates)

    def submit(self, spec):
        return self.cluster.submit(spec)["id"]

    def live(self):
        return self.submit(specs.train(self.corpus, steps=10**6, every_steps=10**6))

    def array(self, ends):
        """Ten tasks that tell a loss, of which each second one fails; or that go on."""
        end = "exit $((MUSTER_ARRAY_INDEX % 2))" if ends else "exec sleep 100000"
        tell = """echo '{"v":1,"step":1,"loss":2.5}' >> $MUSTER_RUN_DIR/metrics.jsonl"""
        array = self.submit({**specs.command(f"{tell}; {end}"), "array": {"count": 10}})
        self.cluster.wait(array, "failed" if ends else "running")
        return array

    def checkpoint(self, *names):
        """Copies of the checkpoint of step 200."""
        for name in names:
            path = os.path.join(self.folder, name)
            shutil.rmtree(path, ignore_errors=True)
            shutil.copytree(f"{self.cluster.jobs_dir}/{self.job}/checkpoints/step-{STEPS:08d}", path)

    def repository(self):
        """One with the tag and the program that the examples name."""
        path = os.path.join(self.folder, "model.git")
        if not os.path.exists(path):
            os.mkdir(path)
            write(path, "train.py", "print('of the repository')\n")
            run("git init -q; git add .; git -c user.name=a -c user.email=a@b.c commit -qm one; git tag v1.2", path,
                self.env)
        return path

    def drain(self, node):
        run(f"muster drain {node}", self.folder, self.env)
        wait_for(f"{node} to be drained",
                 lambda: [n["state"] for n in self.cluster.nodes() if n["id"] == node] == ["drained"])

    def prepare(self, line):
        """What the line speaks of is made; the line with the names that it has here."""
        job, other, cluster = self.job, self.other, self.cluster
        if re.search(r"j\d+\.\d|muster (best|retry)|--tasks", line):
            job = self.array(ends="cancel" not in line)
        elif "checkpoint delete" in line:
            job = self.submit(specs.train(self.corpus, steps=STEPS, every_steps=100))
            cluster.wait(job, "succeeded")
        elif "--time +" in line:
            job = self.submit({**specs.command("exec sleep 100000"), "limits": {"time_s": 1}})
            cluster.wait(job, "failed")
        elif any(f"muster {verb} " in line for verb in LIVE):
            job = self.live()
            other = self.live() if "j18" in line else None
            for each in filter(None, (job, other)):
                cluster.wait(each, "running")
        if "muster resume" in line and "--time" not in line:
            cluster.action(job, "suspend")
            cluster.wait(job, "suspended")
        if "--git" in line:
            line = line.replace("https://example.org/team/model.git", self.repository())
        if " n3" in line:
            cluster.start_agent("n3", "cpu:1")
            cluster.wait_nodes(["n3"])
        if "node remove" in line:
            self.drain("n3")
        if "muster quarantine" in line:
            job = self.submit(specs.command("true"))
            cluster.wait(job, "succeeded")
            with store_of(cluster) as store:
                was = store("HGET", f"muster:job:{job[1:]}", "rec")
                store("HSET", f"muster:job:{job[1:]}", "rec", "x")
                assert cluster.request("GET", f"/v1/jobs/{job}")[0] == 409
                store("HSET", f"muster:job:{job[1:]}", "rec", was)
        if "token revoke" in line:
            made = cluster.api("POST", "/v1/tokens", {"user": "bob", "role": "user"})["token"]
            listed = cluster.api("GET", "/v1/tokens")["tokens"]
            line = line.replace("9f3a60cc1b2e", next(t["id"] for t in listed if t["user"] == "bob"))
            assert made
        if "--snapshot FILE" in line:
            holder = self.live()
            cluster.wait(holder, "running")
            job = self.submit(specs.command("true", devices=4))
            run(f"muster explain {job} --save FILE", self.folder, self.env)
        if re.search("muster (notebook|tensorboard)", line):
            programs = f"{self.folder}.programs"
            if not os.path.exists(programs):
                make_programs(programs, "jupyter-notebook", "tensorboard")
            line += f" --set command.env.PATH={programs}"
        if re.search("muster (attach|port-forward|notebook|tensorboard)", line):  # until they are told to end
            line = (line.replace("8888:", "0:") + " > said 2>&1 & "
                    "until grep -E 'is port|leaves it running|^http:' said; do sleep 0.05; done; kill $!")
        if "muster slurm" in line:
            programs = f"{self.folder}.slurm"
            os.makedirs(programs, exist_ok=True)
            for name, says in (("sbatch", "17"), ("squeue", ""), ("scancel", "")):
                os.chmod(write(programs, name, f"#!/bin/sh\ncat >/dev/null\necho {says}\n"), 0o755)
            write(self.folder, "ask.json", {"prefix": "muster-"})
            line = f"PATH={programs}:$PATH {line}"
        if "profile show" in line:
            FakeAgent(cluster, "n3", ("cpu",)).register(profiles={"cpu": {"products": [[64, 64, 64, 1]]}})
            self.drain("n3")
            run("muster node remove n3", self.folder, self.env)
        if "maintenance add" in line:
            line = line.replace("n1,n2", "n1")
        if "reserve --" in line:
            line = line.replace("--devices 8 --class h100", "--devices 2 --class cpu")
        if "maintenance delete" in line:
            made = run("muster maintenance add --nodes n1 --from +1h --to +1h -o json", self.folder, self.env)
            line = line.replace("m3", json.loads(made)["id"])
        if "reservation delete" in line:
            made = run("muster reserve --devices 1 --from +1h --to +1h --user ann -o json", self.folder, self.env)
            line = line.replace("r3", json.loads(made)["id"])
        if "muster webhook" in line:
            cluster.request("DELETE", "/v1/webhooks/oncall")
            line = line.replace("https://hooks.example.org/muster", self.receiver)
            if "webhook add" not in line:
                cluster.api("POST", "/v1/webhooks", {"name": "oncall", "url": self.receiver})
        if "secret delete" in line:
            run("muster secret set hf < hf.token", self.folder, self.env)
        if "checkpoint import" in line:
            run(f"muster checkpoint export {job} exported && cp exported/model.safetensors .", self.folder, self.env)
        if "checkpoint repair" in line:
            self.checkpoint("checkpoints/step-00000200", "copy", "another")
            os.remove(f"{self.folder}/checkpoints/step-00000200/MANIFEST")
        here = {"j17": job, "j18": other, "JOB": job, "/tmp/run": f"{self.folder}/run",
                "muster top": "muster top --once", "muster profile run": "muster profile run --quick"}
        words = "|".join(re.escape(word) for word in here)  # at once: a job may be j18 here
        return re.sub(rf"(?<!\w)({words})(?!\w)", lambda found: here[found[1]] or found[1], line)

    def tidy(self):
        """As it was before: nothing runs, waits or is drained, and n1 is the one node."""
        cluster = self.cluster
        for job in cluster.list_jobs():
            if job["state"] not in ENDED:
                cluster.request("POST", f"/v1/jobs/{job['id']}/cancel")
                cluster.wait(job["id"], ENDED)
        if any(node["id"] == "n3" for node in cluster.nodes()):
            self.drain("n3")
            run("muster node remove n3", self.folder, self.env)
        if "n3" in cluster.agents:
            cluster.agents.pop("n3").wait(PATIENCE_S)  # it ends when it hears that it was removed
        for kind in ("maintenance", "reservations"):
            for planned in cluster.api("GET", f"/v1/{kind}")[kind]:
                cluster.request("DELETE", f"/v1/{kind}/{planned['id']}")
        for name in ("model", "exported", "run"):
            shutil.rmtree(os.path.join(self.folder, name), ignore_errors=True)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    with Cluster(str(tmp_path_factory.mktemp("docs")), slots=4, server_args=[
            "--webhook-http", "--webhook-allow", "127.0.0.0/8"]) as cluster, receiving() as url:
        yield Place(cluster, url)
    assert not cluster.leftovers()


@pytest.fixture
def place(built):
    yield built
    built.tidy()


@pytest.fixture
def own_state(tmp_path):
    """The environment of somebody without a cluster, who may make one; it goes with the test."""
    mark = f"docs#{tmp_path}"
    env = {k: v for k, v in os.environ.items() if k not in ("MUSTER_SERVER", "MUSTER_TOKEN")}
    env.update({MARK: mark, "MUSTER_STATE": str(tmp_path / "state")})
    yield env
    left = [command_line(pid) for pid in marked(mark)]
    for pid in marked(mark):
        os.kill(pid, 9)
    assert left == []


@pytest.mark.parametrize("line", named(shell_lines()))
def test_a_line_of_shell_does_what_it_says(line, place):
    run(place.prepare(line), place.folder, place.env)


def test_the_way_of_the_readme_is_as_it_says(own_state, tmp_path):
    """After the quickstart, whose job is j1 and whose corpus the next one reads."""
    (at, script), = [b for b in blocks("README.md", "sh") if "<<'YAML'" in b[1]]
    os.makedirs(tmp_path / "build" / "quickstart")
    specs.write_corpus(str(tmp_path / "build" / "quickstart" / "fortunes.txt"), documents=400)
    write(tmp_path, "first.json", specs.command("true"))
    for there, here in (("$PWD/build/bin", BIN), ("muster up ", "muster up --port 0 "),
                        ("muster top", "muster top --once"),
                        ("cat > job.yaml", "muster submit first.json --watch\ncat > job.yaml")):
        assert there in script, f"README.md:{at}"
        script = script.replace(there, here)
    said = run(script, tmp_path, own_state, 300)
    assert "j2 succeeded: every rank is done" in said and "is down" in said


def specs_shown():
    for page in PAGES:
        for line, text in blocks(page, "yaml"):
            yield page, line, text
    for path in sorted(glob.glob(f"{ROOT}/examples/*.yaml")):
        with open(path, encoding="utf-8") as f:
            yield f"examples/{os.path.basename(path)}", 1, f.read()


@pytest.mark.parametrize("text", named(specs_shown()))
def test_a_spec_is_taken_by_the_server(text, place):
    write(place.folder, "shown.yaml", text)
    for name in re.findall(r"(?:path|tokenizer_path): ([\w./-]+)", text):
        assert not name.startswith("/")  # files that are not there are no fault of a spec
    said = json.loads(run("muster submit shown.yaml --no-check-files --dry-run -o json", place.folder, place.env))
    assert said["dry_run"]


def documents():
    return [(page, line, page, text) for page in PAGES for line, text in blocks(page, "json")]


@pytest.mark.parametrize("page, text", named(documents()))
def test_a_document_is_json(page, text):
    assert json.loads(text), page


def test_the_simulator_takes_its_documents_and_plays_the_job_to_its_end(place):
    line = next(text for _, text in blocks("docs/simulator.md", "sh")).splitlines()[0]
    assert "jobs.csv" in line
    said = json.loads(run(line, place.folder, place.env))
    assert "j1" in json.dumps(said)


def test_the_planner_takes_the_cluster_of_its_page(place):
    (_, text), = blocks("docs/planning.md", "json")
    write(place.folder, "C.json", text)
    said = json.loads(run("muster plan job.yaml --cluster C.json -o json", place.folder, place.env))
    assert said["plan"]["layout"]


def shape(document):
    """Names of fields at every depth, of the first element of lists."""
    if isinstance(document, list):
        return [shape(document[0])] if document else []
    return {k: shape(v) for k, v in document.items()} if isinstance(document, dict) else None


def lacks(shown, real, at=""):
    """Fields that are shown and not there."""
    if isinstance(shown, dict) and isinstance(real, dict):
        return [f for k, v in shown.items()
                for f in (lacks(v, real[k], f"{at}/{k}") if k in real else [f"{at}/{k}"])]
    return lacks(shown[0], real[0], f"{at}/0") if isinstance(shown, list) and shown and real else []


def test_documents_of_the_protocol_have_the_fields_that_are_sent(tmp_path):
    job, wanted, report = (json.loads(text) for _, text in blocks("docs/protocol.md", "json"))
    with Cluster(str(tmp_path), slots=0) as cluster:
        agent = FakeAgent(cluster, slots=("cpu",))
        agent.register()
        id_ = cluster.submit(specs.command("true"))["id"]
        agent.until(id_)
        agent.version = 0
        status, sent = agent.call("GET", f"/{agent.node}/assignments?version=0&wait=5&incarnation={agent.incarnation}")
        for name in ("leaves", "givers"):  # are told where replicas of a training job differ, or it has moved
            wanted["assignments"][0].pop(name)
        assert status == 200 and lacks(shape(wanted), shape(sent)) == []
        report["incarnation"] = agent.incarnation
        report["runs"][0]["ranks"][0]["state"] = "running"
        for piece in [*report["runs"], *report["logs"], *report["metrics"], *report["events"]]:
            piece.update(job=id_, generation=1)
        status, answer = agent.call("POST", f"/{agent.node}/report", report)
        assert status == 200 and {a["offset"] for a in answer["acks"]["logs"]} == {len("…".encode())}, answer
        wait_for("the run", lambda: cluster.job(id_)["state"] == "running")
        shown = shape(job)
        for name in ("layout", "progress", "eval", "checkpoint", "spec"):  # null for a command that has just begun
            shown[name] = None
        assert lacks(shown, shape(cluster.job(id_))) == []
    assert not cluster.leftovers()
