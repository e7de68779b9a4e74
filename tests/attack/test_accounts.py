"""What a job may learn and do of the machine it runs on: environment, files, accounts."""
from tests import specs
from tests.cluster import MARK, Cluster


def variables(cluster, job):
    """What `env` printed into a job's log."""
    return dict(line.split("=", 1) for line in cluster.log_text(job).splitlines() if "=" in line)


def test_a_job_gets_no_variable_of_the_agent_but_those_that_are_listed(tmp_path):
    agent = {"AWS_SECRET_ACCESS_KEY": "hush", "UCX_LOG_LEVEL": "warn", "UCXX": "no", "LANG": "C.UTF-8", "TZ": "UTC"}
    with Cluster(str(tmp_path), slots=1, env=agent, agent_args=["--pass-env", f"{MARK},UCX_*"]) as cluster:
        spec = specs.command("env")
        spec["command"]["env"] = {"GREETING": "hello"}
        job = cluster.submit(spec)["id"]
        cluster.wait(job, "succeeded")
        got = variables(cluster, job)
    assert not cluster.leftovers()
    of_muster = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT",
                 "OMP_NUM_THREADS"}
    own = {"PWD", "SHLVL", "_", "OLDPWD"}  # a shell's
    named = {"PATH", "HOME", "LANG", "TZ", "USER", MARK, "UCX_LOG_LEVEL", "GREETING"}
    assert {name for name in got if not name.startswith("MUSTER_")} <= of_muster | own | named
    assert (got["GREETING"], got["LANG"], got["TZ"], got["UCX_LOG_LEVEL"]) == ("hello", "C.UTF-8", "UTC", "warn")
    assert {name for name in got if name.startswith("MUSTER_")} == {
        "MUSTER_JOB", "MUSTER_GENERATION", "MUSTER_RUN_DIR", "MUSTER_JOB_DIR", "MUSTER_HOLD"}
