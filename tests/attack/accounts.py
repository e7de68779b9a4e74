"""A cluster whose server, agent and jobs are three Unix accounts, as the units of deploy/systemd have it.

The accounts exist in a mount namespace of the test's processes alone, where /etc/passwd and /etc/group are other files:
nothing of the machine is changed. That takes root and the right to make mount namespaces; `missing()` says what is not
there.
"""
import contextlib
import glob
import os
import pwd
import shutil
import subprocess
import tempfile

from tests.cluster import BIN, PASS_ENV, Cluster

USERS = {"muster": 901, "muster-agent": 902, "muster-job": 903, "system": 904, "alice": 61201, "bob": 61202}
GROUPS = {**USERS, "team": 61300, "docker": 61301, "sudo": 27}
MEMBERS = {"team": "alice", "docker": "alice", "sudo": "alice"}
GIDS = {"muster-agent": 901}  # the server's, whose folders of jobs agents give away


def missing():
    """What the machine does not permit; "" when all is there."""
    if os.geteuid() != 0:
        return "only root can be several users"
    tried = subprocess.run(["unshare", "-m", "true"], capture_output=True, text=True, check=False)
    return "" if tried.returncode == 0 else f"no mount namespace is permitted here: {tried.stderr.strip()}"


class AccountsCluster(Cluster):
    """`start` is called with this object before the agent is started, such as to make tokens."""
    opened = 0  # how many there are, whose helpers share their control groups

    def __init__(self, **more):
        # Not a folder of pytest, where only root gets in, nor in /tmp, of which ranks have their own.
        self.top = tempfile.mkdtemp(prefix="muster-accounts-", dir="/var/tmp")
        os.chmod(self.top, 0o755)
        self.write_names()
        self.programs = os.path.join(self.top, "bin")
        os.mkdir(self.programs)
        for name in os.listdir(BIN):
            shutil.copy(os.path.join(BIN, name), self.programs)
        AccountsCluster.opened += 1
        super().__init__(os.path.join(self.top, "cluster"), **more)
        self.hand(self.folder, "muster", 0o755)
        self.hand(self.jobs_dir, "muster", 0o2771, "muster")
        self.hand(self.make(self.state), "muster", 0o700)

    def write_names(self):
        """What stands for /etc/passwd and /etc/group."""
        kept = [line for line in open("/etc/passwd", encoding="utf-8") if line.split(":")[0] not in USERS]
        groups = [line for line in open("/etc/group", encoding="utf-8") if line.split(":")[0] not in GROUPS]
        for uid in USERS.values():
            assert uid not in {u.pw_uid for u in pwd.getpwall()}, f"this machine has a user {uid}"
        with open(os.path.join(self.top, "passwd"), "w", encoding="utf-8") as f:
            f.writelines([*kept, *(f"{name}:x:{uid}:{GIDS.get(name, uid)}::{self.top}:/bin/sh\n" for name, uid in
                                   USERS.items())])
        with open(os.path.join(self.top, "group"), "w", encoding="utf-8") as f:
            f.writelines([*groups, *(f"{name}:x:{gid}:{MEMBERS.get(name, '')}\n" for name, gid in GROUPS.items())])

    @staticmethod
    def make(path):
        os.makedirs(path, exist_ok=True)
        return path

    @staticmethod
    def hand(path, user, mode, group=None):
        os.chown(path, USERS[user], GROUPS[group or user])
        os.chmod(path, mode)

    def inside(self, *argv):
        """A command line in the namespace where the accounts are."""
        return ["unshare", "-m", "sh", "-c", 'mount --bind "$0/passwd" /etc/passwd && '
                'mount --bind "$0/group" /etc/group && exec "$@"', self.top, *argv]

    def spawn(self, name, argv):
        if name == "musterd":
            argv = self.inside("setpriv", f"--reuid={USERS['muster']}", f"--regid={GROUPS['muster']}",
                               "--clear-groups", os.path.join(self.programs, "musterd"), *argv[1:])
        return super().spawn(name, argv)

    def start_agent(self, name, devices=None):
        self.devices[name] = devices or self.devices[name]
        token = os.path.join(self.top, "agent-token")
        shutil.copy(f"{self.state}/agent-token", token)
        self.hand(token, "muster-agent", 0o600)
        self.hand(self.make(self.agent_state(name)), "muster-agent", 0o700)
        self.agents[name] = self.spawn(f"agent-{name}", self.inside(
            os.path.join(self.programs, "muster-helper"), "muster-agent", "muster-job",
            os.path.join(self.programs, "muster-agent"), "--server", self.url, "--token-file", token, "--state",
            self.agent_state(name), "--node", name, "--devices", self.devices[name], "--stop-ranks-on-exit",
            "--pass-env", PASS_ENV, *self.agent_args))

    def close(self):
        super().close()
        for left in glob.glob(f"/dev/shm/muster-{USERS['muster-agent']}-*"):
            shutil.rmtree(left, ignore_errors=True)  # of runs that nobody came to forget
        shutil.rmtree(self.top, ignore_errors=True)
        AccountsCluster.opened -= 1
        for group in glob.glob("/sys/fs/cgroup/**/muster-jobs", recursive=True) if AccountsCluster.opened == 0 else ():
            with contextlib.suppress(OSError):  # another agent's ranks are there
                os.rmdir(group)
