"""Hosts on one Ethernet segment: network namespaces with addresses of their own, for tests of several machines.

    with Hosts({"head": "10.77.0.1", "node1": "10.77.0.2"}) as hosts:
        hosts.start("node1", ["program"], log)
        with hosts.inside("head"):
            ...  # sockets made here, and processes started here, are the head's

What still runs on them at the end is killed.
"""
import contextlib
import ctypes
import os
import secrets
import signal
import subprocess

CLONE_NEWNET = 0x40000000
NEEDS = "making and entering network namespaces needs root on a file system of its own"


def can_make_hosts():
    name = f"muster-probe-{secrets.token_hex(4)}"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode != 0:
        return False
    entered = subprocess.run(["ip", "netns", "exec", name, "true"], capture_output=True)
    subprocess.run(["ip", "netns", "del", name], check=True)
    return entered.returncode == 0


def ip(*args):
    subprocess.run(["ip", *args], check=True)


class Hosts:
    """addresses: by name; the first has the bridge that all hang on."""

    def __init__(self, addresses):
        self.addresses = addresses
        self.prefix = f"muster-{secrets.token_hex(4)}"
        self.children = []

    def __enter__(self):
        head, *others = self.addresses
        for name in self.addresses:
            ip("netns", "add", self.ns(name))
            ip("-n", self.ns(name), "link", "set", "lo", "up")
        ip("-n", self.ns(head), "link", "add", "br0", "type", "bridge")
        ip("-n", self.ns(head), "addr", "add", f"{self.addresses[head]}/24", "dev", "br0")
        ip("-n", self.ns(head), "link", "set", "br0", "up")
        for name in others:
            ip("-n", self.ns(head), "link", "add", f"to-{name}", "type", "veth", "peer", "name", "eth0",
               "netns", self.ns(name))
            ip("-n", self.ns(head), "link", "set", f"to-{name}", "master", "br0", "up")
            ip("-n", self.ns(name), "addr", "add", f"{self.addresses[name]}/24", "dev", "eth0")
            ip("-n", self.ns(name), "link", "set", "eth0", "up")
        return self

    def ns(self, name):
        return f"{self.prefix}-{name}"

    @contextlib.contextmanager
    def inside(self, name):
        """Let this thread, and what it starts, be on the host."""
        libc = ctypes.CDLL(None, use_errno=True)

        def enter(f):
            if libc.setns(f.fileno(), CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")
        with open("/proc/thread-self/ns/net", "rb") as home, open(f"/run/netns/{self.ns(name)}", "rb") as there:
            enter(there)
            try:
                yield
            finally:
                enter(home)

    def start(self, host, argv, log, env=None):
        with open(log, "ab") as out:
            child = subprocess.Popen(["ip", "netns", "exec", self.ns(host), *argv], stdin=subprocess.DEVNULL,
                                     stdout=out, stderr=out, env=dict(os.environ, **(env or {})))
        self.children.append(child)
        return child

    def run(self, host, argv, env=None, seconds=120):
        return subprocess.run(["ip", "netns", "exec", self.ns(host), *argv], capture_output=True, text=True,
                              timeout=seconds, env=dict(os.environ, **(env or {})))

    def pids(self, host):
        out = subprocess.run(["ip", "netns", "pids", self.ns(host)], capture_output=True, text=True).stdout
        return [int(pid) for pid in out.split()]

    def kill(self, host):
        """End all that runs on the host, with no notice to anybody."""
        for pid in self.pids(host):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def __exit__(self, kind, value, trace):
        for child in reversed(self.children):
            if child.poll() is None:
                child.terminate()
        for child in self.children:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(20)
        for name in self.addresses:
            self.kill(name)
            subprocess.run(["ip", "netns", "del", self.ns(name)], check=False)
