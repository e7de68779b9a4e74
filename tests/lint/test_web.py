"""The scripts of the dashboard are read by a parser: one that cannot be read leaves an empty page."""
import glob
import os
import shutil
import subprocess

import pytest

WEB = os.path.join(os.path.dirname(__file__), "..", "..", "api", "web")
READ = """
const vm = require('vm'), fs = require('fs');
for (const path of process.argv.slice(1))
    new vm.SourceTextModule(fs.readFileSync(path, 'utf8'), { identifier: path });
"""


def test_each_script_can_be_parsed():
    node = shutil.which("node")
    if not node:
        pytest.skip("there is no node here to read them")
    done = subprocess.run([node, "--no-warnings", "--experimental-vm-modules", "-e", READ, *glob.glob(f"{WEB}/*.js")],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
