"""A whole Slurm on this host: slurmctld, some slurmd and munge, of Debian's packages, in a folder of the test's own."""
import os
import shutil
import signal
import subprocess

from tests.cluster import free_port, wait_for
from tests.patience import PATIENCE_S

PROGRAMS = ["slurmctld", "slurmd", "munged", "sbatch", "scancel", "squeue", "srun", "salloc", "scontrol"]
MISSING = [name for name in PROGRAMS if not shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin")]
CONF = """ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={dir}/munge.sock
CredType=cred/munge
SlurmctldPort={port}
SlurmctldPidFile={dir}/slurmctld.pid
SlurmdPidFile={dir}/slurmd-%n.pid
StateSaveLocation={dir}/state
SlurmdSpoolDir={dir}/spool-%n
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
KillWait=5
ReturnToService=2
GresTypes=gpu
{nodes}
PartitionName=low Nodes=s[1-{n}] Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=60
PartitionName=high Nodes=s[1-{n}] MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
"""


class Slurm:
    """`nodes` compute nodes s1, s2, ... of 2 processors, those of `gpus` with so many GPUs of no hardware."""

    def __init__(self, folder, nodes=4, gpus=None):
        self.folder = folder
        self.nodes, self.gpus = nodes, gpus or {}
        self.env = dict(os.environ, SLURM_CONF=f"{folder}/slurm.conf")
        self.running = []

    def spawn(self, name, argv):
        with open(f"{self.folder}/{name}.log", "ab") as out:
            self.running.append(subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=self.env,
                                                 cwd=self.folder))

    def write(self, name, text):
        with open(f"{self.folder}/{name}", "w", encoding="ascii") as f:
            f.write(text)

    def __enter__(self):
        os.makedirs(f"{self.folder}/state")
        os.chmod(self.folder, 0o755)
        lines, gres = [], []
        for i in range(1, self.nodes + 1):
            count = self.gpus.get(f"s{i}", 0)
            lines.append(f"NodeName=s{i} NodeHostname={os.uname().nodename} NodeAddr=127.0.0.1 Port={free_port()} "
                         f"CPUs=2 RealMemory=1000{f' Gres=gpu:{count}' if count else ''} State=UNKNOWN")
            for k in range(count):
                os.mknod(f"{self.folder}/gpu-s{i}-{k}", 0o644)
                gres.append(f"NodeName=s{i} Name=gpu File={self.folder}/gpu-s{i}-{k}")
        self.write("slurm.conf", CONF.format(host=os.uname().nodename, user="root", dir=self.folder, port=free_port(),
                                             nodes="\n".join(lines), n=self.nodes))
        self.write("gres.conf", "\n".join(gres) + "\n")
        with open(f"{self.folder}/munge.key", "wb") as f:
            f.write(os.urandom(1024))
        os.chmod(f"{self.folder}/munge.key", 0o600)
        try:
            self.spawn("munged", ["munged", "--foreground", "--force", f"--key-file={self.folder}/munge.key",
                                  f"--socket={self.folder}/munge.sock", f"--pid-file={self.folder}/munge.pid",
                                  f"--log-file={self.folder}/munged-own.log", f"--seed-file={self.folder}/munge.seed"])
            wait_for("munged", lambda: os.path.exists(f"{self.folder}/munge.sock"))
            self.spawn("slurmctld", ["slurmctld", "-D", "-i"])
            for i in range(1, self.nodes + 1):
                self.spawn(f"slurmd-s{i}", ["slurmd", "-D", "-N", f"s{i}"])
            wait_for("all nodes to be idle", lambda: self.run("sinfo", "-h", "-t", "idle", "-p", "low", "-o", "%D",
                                                              check=False).stdout.strip() == str(self.nodes))
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, *_):
        self.run("scancel", "--me", check=False)
        try:
            wait_for("all jobs of Slurm to end", lambda: not self.run("squeue", "-h", check=False).stdout.strip(), 60)
        except AssertionError:
            pass
        for process in reversed(self.running):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(PATIENCE_S)

    def run(self, *argv, check=True, **more):
        got = subprocess.run(argv, env=self.env, capture_output=True, text=True, timeout=PATIENCE_S, cwd=self.folder,
                             check=False, **more)
        assert not check or got.returncode == 0, f"{argv}: {got.returncode}\n{got.stdout}\n{got.stderr}"
        return got

    def state(self, job):
        return self.run("squeue", "-h", "-j", str(job), "-o", "%T", check=False).stdout.strip()

    def jobs(self):
        """(number, state, partition, account, name) of all that wait or run."""
        return [tuple(line.split("|")) for line in self.run("squeue", "-h", "-o", "%A|%T|%P|%a|%j").stdout.split()]
