"""GPUs that an agent finds through the driver library of tests/gpu/fake_nvml.c."""
import json
import os

from tests.cluster import BIN

FAKE = os.path.join(os.path.dirname(BIN), "tests", "gpu")


def gpu(uuid, **more):
    return {"uuid": uuid, "name": "NVIDIA H100 80GB HBM3", "memory_mib": 81559, "used_mib": 5, "util": 0,
            "power_mw": 70000, "temperature": 31, "throttle": 0, "ecc": 0, "remap_failed": 0, "pids": [], **more}


class Gpus:
    """GPUs of an agent whose environment has `env`: those of the last show()."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "gpus.json")
        self.env = {"LD_LIBRARY_PATH": FAKE, "FAKE_NVML": self.path}

    def show(self, *gpus, **more):
        with open(self.path + ".next", "w", encoding="utf-8") as f:
            json.dump({"gpus": gpus, **more}, f)
        os.replace(self.path + ".next", self.path)
