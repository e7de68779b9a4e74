"""What people bring from other systems runs here, and what has no counterpart is named."""
import subprocess

import pytest
import yaml

from tests.cluster import BIN, ROOT, Cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(str(tmp_path_factory.mktemp("migration")), slots=2) as c:
        yield c
    assert not c.leftovers()


def test_a_batch_script_of_slurm_runs_on_each_device(cluster, tmp_path):
    read = cluster.muster("import-slurm", f"{ROOT}/examples/train.sbatch", check=True)
    assert read.stderr.splitlines() == [
        f"{ROOT}/examples/train.sbatch:5: --output=digits-%j.out: `muster logs JOB` shows what each rank prints"]
    assert "#   line 5, --output=digits-%j.out: " in read.stdout
    (tmp_path / "job.yaml").write_text(read.stdout, encoding="utf-8")
    cluster.muster("submit", str(tmp_path / "job.yaml"), check=True)
    job = cluster.list_jobs()[0]["id"]
    assert cluster.wait(job, ["succeeded", "failed"])["state"] == "succeeded"
    assert [cluster.log_text(job, rank) for rank in range(2)] == [
        "rank 0 of 2 has 249500\n", "rank 1 of 2 has 250000\n"]


def test_an_array_with_a_time_limit_and_a_warning_of_slurm_is_one_here(cluster, tmp_path):
    path = tmp_path / "tasks.sbatch"
    path.write_text("#!/bin/sh\n#SBATCH -a 2-6:2%1 -t 5 --signal=USR1@30\necho task $SLURM_ARRAY_TASK_ID\n",
                    encoding="utf-8")
    read = cluster.muster("import-slurm", str(path), check=True)
    assert read.stderr == ""
    (tmp_path / "job.yaml").write_text(read.stdout, encoding="utf-8")
    cluster.muster("submit", str(tmp_path / "job.yaml"), check=True)
    array = next(j["id"] for j in cluster.list_jobs() if j.get("array", {}).get("count") == 3)
    assert cluster.wait(array, ["succeeded", "failed"])["state"] == "succeeded"
    tasks = cluster.api("GET", f"/v1/jobs?array={array}")["jobs"]
    assert sorted(cluster.log_text(j["id"]) for j in tasks) == ["task 2\n", "task 4\n", "task 6\n"]
    spec = cluster.job(array)["spec"]
    assert spec["limits"]["time_s"] == 300 and spec["limits"]["warn_signal"] == "SIGUSR1", spec["limits"]


def test_the_spec_of_a_script_is_yaml_of_the_same_text(tmp_path):
    """Whatever the script's lines hold: leading blanks, colons, quotes, tabs, lines without anything."""
    body = "  indented: yes\n\n\t# tab\n'quoted' \"twice\" {a: b} - |\n---\n...\nüñí %s\n"
    path = tmp_path / "odd.sbatch"
    path.write_text(f"#!/bin/bash\n#SBATCH -J 'a: b'\n\n{body}", encoding="utf-8")
    out = subprocess.run([f"{BIN}/muster", "import-slurm", str(path)], capture_output=True, text=True, check=True)
    assert yaml.safe_load(out.stdout)["command"]["argv"] == ["/bin/bash", "-c", body]


def test_what_is_no_script_is_refused(tmp_path):
    for name, data in (("empty", b""), ("nul", b"#!/bin/sh\n\0"), ("huge", b"#!/bin/sh\n" + b"x" * (200 << 10))):
        (tmp_path / name).write_bytes(data)
        out = subprocess.run([f"{BIN}/muster", "import-slurm", str(tmp_path / name)], capture_output=True, text=True,
                             check=False)
        assert out.returncode == 1 and out.stdout == "" and len(out.stderr.splitlines()) == 1, (name, out)
