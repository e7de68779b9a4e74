"""The CLI where no server is needed: help, completion, wrong usage, exit statuses, paths of specs."""
import json
import os
import re
import subprocess

import pytest
import yaml

from tests import specs
from tests.patience import PATIENCE_S

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.path.join(ROOT, os.environ.get("MUSTER_BUILD", "build"), "bin")


def muster(*args, cwd=None, **env):
    return subprocess.run([f"{BIN}/muster", *args], capture_output=True, text=True, timeout=PATIENCE_S, cwd=cwd,
                          env=dict(os.environ, **env))


@pytest.mark.parametrize("args,status,says", [
    ([], 2, ""),
    (["submti", "x"], 2, "did you mean 'submit'?"),
    (["checkpoint", "digets", "x"], 2, "did you mean 'checkpoint digest'?"),
    (["token", "creat", "x"], 2, "did you mean 'token create'?"),
    (["priority", "j1", "high"], 2, "a number from 0 to 100, not 'high'"),
    (["submit", "--wacth", "x"], 2, "did you mean '--watch'?"),
    (["submit"], 2, "want a file with a spec, or -- and a program"),
    (["submit", "x", "--", "y"], 2, "want a file with a spec, or -- and a program"),
    (["submit", "--"], 2, "want a file with a spec, or -- and a program"),
    *[(["submit", "--devices", wrong, "--", "y"], 2, "--devices wants a number from 1 to 1024, or a range such as 1-4")
      for wrong in ("0", "", "-1", "4-2", "1-", "1-2-3", " 1", "1-1025", "99999999999999999999")],
    (["resubmit", "j1", "--elastic"], 2, "--elastic"),
    (["submit", "--workdir", "/nowhere", "--", "y"], 3, "/nowhere"),
    (["list", "x"], 2, "one argument too many"),
    (["list", "-n", "0"], 2, "a number from 1 to 100000"),
    (["list", "-o", "xml"], 2, "wants json, not 'xml'"),
    (["run", "x", "-o", "json"], 2, "takes no -o"),
    (["submit", "x", "--watch", "--follow"], 2, "not both"),
    (["events", "../j1"], 3, "no job '../j1'"),
    (["list", "--project", "a&b"], 2, "--project 'a&b': want a name"),
    (["metrics", "j1", "--names", "a b"], 2, "want names such as loss,lr"),
    (["submit", "--watch=yes", "x"], 2, "takes no value"),
    (["submit", "x", "--name"], 2, "wants NAME"),
    (["submit", "/nowhere/spec.yaml"], 3, "/nowhere/spec.yaml"),
    (["run", "/nowhere/spec.yaml"], 2, "--dir"),
    (["checkpoint", "verify", "/nowhere"], 3, "/nowhere"),
    (["checkpoint", "digest", "/"], 3, "no whole checkpoint"),
    (["checkpoint", "diff", "/", "/"], 3, "no whole checkpoint"),
    (["checkpoint", "import", "/nowhere/a", "b"], 3, "/nowhere/a"),
    (["scale", "j1"], 2, "want a number of devices, or --min N, --max N or both"),
    (["scale", "j1", "0"], 2, "a number of devices is 1 to"),
    (["scale", "j1", "2-1"], 2, "a number of devices is 1 to"),
    (["scale", "j1", "--min", "4", "--max", "2"], 2, "more than --max 2"),
    (["limit", "j1"], 2, "want --time TIME, or --running N for an array"),
    (["limit", "j1", "--time", "4h", "--running", "2"], 2, "want --time TIME, or --running N for an array"),
    (["limit", "j1", "--time", "soon"], 2, "--time wants none, or a time such as 90m"),
    (["simulate"], 2, "want --trace FILE"),
    (["completion", "tcsh"], 2, "bash, zsh or fish"),
    (["--tokn", "x", "list"], 2, "did you mean '--token'?"),
    (["-o", "json", "lost"], 2, "unknown command 'lost'; did you mean 'list'?"),
    (["-o", "json", "submit", "--name"], 2, "--name"),
    (["--server", "http://127.0.0.1:1", "--token", "x", "-o", "json", "list"], 5, "is it running?"),
    (["help", "nothing"], 2, "no command 'nothing'"),
    (["list", "--server", "http://127.0.0.1:1", "--token", "x"], 5, "is it running?"),
    (["list", "--server", "ftp://127.0.0.1", "--token", "x"], 5, "want http://HOST:PORT or https://HOST:PORT"),
])
def test_what_goes_wrong_is_said_and_counted(args, status, says, tmp_path):
    out = muster(*args, MUSTER_STATE=str(tmp_path))
    assert out.returncode == status, out.stdout + out.stderr
    assert says in out.stderr


def test_without_a_server_the_way_to_one_is_told(tmp_path):
    out = muster("list", MUSTER_STATE=str(tmp_path), MUSTER_SERVER="", MUSTER_TOKEN="")
    assert out.returncode == 5 and "muster up" in out.stderr


def test_a_bad_file_is_refused_with_its_line(tmp_path):
    (tmp_path / "bad.yaml").write_text("a: 1\na: 2\n")
    out = muster("submit", str(tmp_path / "bad.yaml"), MUSTER_STATE=str(tmp_path))
    assert out.returncode == 4 and f"{tmp_path}/bad.yaml: line 2, column 1" in out.stderr


def test_run_says_all_faults_and_leaves_nothing(tmp_path):
    (tmp_path / "bad.yaml").write_text("train: {model: gpt2-tiny, data: {path: x}, stepz: 3}\nname: a b\n")
    out = muster("run", "bad.yaml", "--dir", "out", "--set", "train.steps=0", cwd=tmp_path)
    assert out.returncode == 4 and not (tmp_path / "out").exists()
    for pointer in ("/train/stepz", "/train/steps", "/name"):
        assert f"  bad.yaml:{pointer}: " in out.stderr, out.stderr


def test_run_trains_from_standard_input_with_changes_and_keeps_its_spec(tmp_path):
    specs.write_corpus(str(tmp_path / "text.txt"), documents=100)
    spec = specs.train("text.txt", every_steps=0)
    spec["train"]["data"]["path"] = "text.txt"
    out = subprocess.run([f"{BIN}/muster", "run", "-", "--dir", "out", "--set", "train.steps=6"], cwd=tmp_path,
                         input=json.dumps(spec), capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert out.returncode == 0, out.stderr
    assert len((tmp_path / "out" / "metrics.jsonl").read_text().splitlines()) == 6
    assert "step 6/6  loss" in out.stderr and out.stderr.endswith("done; metrics, logs and checkpoints are in 'out'\n")
    kept = json.loads((tmp_path / "out" / "spec.json").read_text())
    assert kept["train"]["steps"] == 6 and kept["train"]["data"]["path"] == str(tmp_path / "text.txt")


def test_down_without_a_cluster_is_done(tmp_path):
    out = muster("down", MUSTER_STATE=str(tmp_path))
    assert out.returncode == 0 and "no cluster" in out.stdout


def command_names():
    lines = [line for group in muster("help").stdout.split("\n\n")[2:-1] for line in group.splitlines()[1:]]
    return [" ".join(re.findall(r"\b[a-z]+(?:-[a-z]+)*\b", re.split(r" {2,}", line.strip())[0])) for line in lines
            if line[:3].rstrip(" ") == line[:3]]  # not the rest of the words of the line before


def test_every_command_has_help_with_an_example():
    names = command_names()
    assert len(names) > 30 and {"submit", "metrics", "checkpoint digest"} <= set(names)
    for name in names:
        out = muster("help", *name.split())
        assert out.returncode == 0 and out.stdout.startswith(f"usage: muster {name}"), out
        assert out.stdout.count("\nexample:\n") == 1 and f"muster {name}" in out.stdout.split("example:")[1]
        assert muster(*name.split(), "--help").stdout == out.stdout
        assert max(map(len, out.stdout.splitlines())) <= 80, out.stdout


def test_the_group_of_checkpoint_commands_has_help():
    out = muster("help", "checkpoint")
    assert out.returncode == 0 and "checkpoint verify" in out.stdout
    assert muster("checkpoint", "--help").stdout == out.stdout
    assert muster("checkpoint").returncode == 2


def test_the_version_is_printed():
    out = muster("--version")
    assert out.returncode == 0 and re.fullmatch(r"muster \d+\.\d+\.\d+\n", out.stdout)


@pytest.mark.parametrize("sets,says", [
    (["steps"], "want PATH=VALUE"),
    (["=3"], "want PATH=VALUE"),
    (["train..steps=3"], "no path"),
    (["train.steps.x=3"], "'train.steps' is no object"),
])
def test_a_bad_set_is_said(tmp_path, sets, says):
    (tmp_path / "a.yaml").write_text("train: {steps: 3}\n")
    out = muster("plan", str(tmp_path / "a.yaml"), *[f"--set={s}" for s in sets], MUSTER_STATE=str(tmp_path))
    assert out.returncode == 2 and says in out.stderr, out.stderr


def test_the_references_in_docs_are_what_the_tables_say():
    for option, name in (("--markdown", "docs/cli.md"), ("--spec", "docs/spec.md")):
        with open(os.path.join(ROOT, name), encoding="utf-8") as f:
            assert muster("help", option).stdout == f.read(), f"run 'make {name}'"
    with open(os.path.join(ROOT, "api/openapi.yaml"), encoding="utf-8") as f:
        described = yaml.safe_load(f)["components"]["schemas"]
    tables = json.loads(muster("help", "--messages").stdout)
    tables["Spec"] = json.loads(muster("help", "--schema").stdout)
    assert tables["Spec"].pop("$schema") and {"Spec", "AgentReport", "AgentAssignmentSet"} <= described.keys()
    printed = {name: schema for name, schema in described.items() if name in tables}
    assert printed == {name: tables[name] for name in printed}, "run 'make openapi'"


def test_help_comes_in_groups_of_which_each_command_is_in_one():
    text = muster("help").stdout
    assert muster("version").stdout == muster("--version").stdout
    heads = re.findall(r"^([A-Z][a-z ]+):$", text, re.M)
    assert heads[:4] == ["Jobs", "Watch", "Change", "Cluster"] and "Checkpoints" in heads
    assert text.index("Watch:") < text.index("\n  top ") < text.index("Change:") < text.index("\n  cancel ")


def test_completion_is_good_shell_and_knows_the_commands():
    script = muster("completion", "bash").stdout
    probe = "COMP_WORDS=(muster sub); COMP_CWORD=1; _muster; echo ${COMPREPLY[*]}\n" \
            "COMP_WORDS=(muster submit --wa); COMP_CWORD=2; _muster; echo ${COMPREPLY[*]}\n" \
            "COMP_WORDS=(muster checkpoint ver); COMP_CWORD=2; _muster; echo ${COMPREPLY[*]}\n" \
            "COMP_WORDS=(muster checkpoint export --d); COMP_CWORD=3; _muster; echo ${COMPREPLY[*]}\n"
    out = subprocess.run(["bash"], input=script + probe, capture_output=True, text=True, check=True)
    assert out.stdout.split("\n")[:4] == ["submit", "--watch", "verify", "--dtype"] and not out.stderr
    zsh, fish = muster("completion", "zsh").stdout, muster("completion", "fish").stdout
    assert zsh.startswith("#compdef muster") and zsh.count("'simulate:") == 1
    assert "'token:create list revoke '" in zsh and "token) compadd create list revoke ; return;;" in zsh
    assert "-a submit" in fish and "-a node -d 'test series end enroll forget remove '" in fish


def test_the_schema_is_json():
    schema = json.loads(muster("help", "--schema").stdout)
    assert schema["properties"]["priority"]["maximum"] == 100
