"""Hosts on one Ethernet segment: network namespaces with addresses of their own, for tests of several machines.

    with Hosts({"head": "10.77.0.1", "node1": "10.77.0.2"}) as hosts:
        hosts.start("node1", ["program"], log)
        with hosts.inside("head"):
            ...  # sockets made here, and processes started here, are the head's

What still runs on them at the end is killed.
"""
import contextlib
import ctypes
import fcntl
import heapq
import os
import random
import secrets
import select
import signal
import struct
import subprocess
import threading
import time

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


TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 2, 0x1000


class Wire(threading.Thread):
    """Between two devices of hosts that this process serves: what goes into one comes out of the other, later if it is
    told so. Not all kernels have a queue that delays (netem)."""

    def __init__(self, ends):
        super().__init__(daemon=True)
        self.ends, self.delay_s, self.jitter_s, self.done = ends, 0.0, 0.0, False

    @staticmethod
    def end(device):
        """Of a new device, in the network that this thread is in."""
        fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", device.encode(), IFF_TAP | IFF_NO_PI))
        return fd

    def run(self):
        waiting, last, count = [], {}, 0
        while not self.done:
            left = max(0.0, waiting[0][0] - time.monotonic()) if waiting else 0.1
            for fd in select.select(self.ends, [], [], min(left, 0.1))[0]:
                with contextlib.suppress(BlockingIOError):
                    frame = os.read(fd, 65536)
                    to = self.ends[fd == self.ends[0]]
                    due = time.monotonic() + self.delay_s + random.uniform(-self.jitter_s, self.jitter_s)
                    last[to] = max(due, last.get(to, 0))  # none overtakes another
                    count += 1
                    heapq.heappush(waiting, (last[to], count, to, frame))
            while waiting and waiting[0][0] <= time.monotonic():
                _, _, to, frame = heapq.heappop(waiting)
                with contextlib.suppress(OSError):  # the device is down, or takes no more: it is lost
                    os.write(to, frame)

    def close(self):
        self.done = True
        self.join()
        for fd in self.ends:
            os.close(fd)


class Hosts:
    """addresses: by name; the first has the bridge that all hang on. slowed: those whose link slow() delays."""

    def __init__(self, addresses, slowed=()):
        self.addresses = addresses
        self.slowed, self.wires = slowed, []
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
            if name in self.slowed:
                self.lay_wire(head, name)
            else:
                ip("-n", self.ns(head), "link", "add", f"to-{name}", "type", "veth", "peer", "name", "eth0",
                   "netns", self.ns(name))
            ip("-n", self.ns(head), "link", "set", f"to-{name}", "master", "br0", "up")
            ip("-n", self.ns(name), "addr", "add", f"{self.addresses[name]}/24", "dev", "eth0")
            ip("-n", self.ns(name), "link", "set", "eth0", "up")
        return self

    def lay_wire(self, head, name):
        ends = []
        for host, device in (head, f"to-{name}"), (name, "eth0"):
            with self.inside(host):
                ends.append(Wire.end(device))
        self.wires.append(Wire(ends))
        self.wires[-1].start()

    def slow(self, delay_s, jitter_s):
        """What the slowed hosts send and get comes so much later from now on."""
        for wire in self.wires:
            wire.delay_s, wire.jitter_s = delay_s, jitter_s

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
        for wire in self.wires:
            wire.close()
        for name in self.addresses:
            self.kill(name)
            subprocess.run(["ip", "netns", "del", self.ns(name)], check=False)
