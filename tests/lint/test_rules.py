"""Each house rule that tests/lint/rules.py checks fails on a planted violation, and not on its lawful twin."""
import os
import subprocess
import sys

import pytest

RULES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "rules.py")


def lint(tmp_path, path, text):
    """What the rules say of one file of that path and text."""
    file = tmp_path / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    out = subprocess.run([sys.executable, RULES, path], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (out.returncode != 0) == bool(out.stdout.strip())
    return out.stdout


@pytest.mark.parametrize("path, bad, good, says", [
    ("api/x_int.h", "/* x_int - a */\n", None, "ends in _priv.h"),
    ("scheduler/sim/x_impl.h", "/* x_impl - a */\n", None, "ends in _priv.h"),
    ("api/cli/x.c", '#include "api/spec_priv.h"\n', '#include "api/spec.h"\n', "for api/ alone"),
    ("scheduler/plan/x.c", '#include "scheduler/cluster/sched_priv.h"\n', '#include "scheduler/plan/y_priv.h"\n',
     "for scheduler/cluster/ alone"),
    ("tests/unit/api/x.c", '#include "scheduler/cluster/sched_priv.h"\n', '#include "api/spec_priv.h"\n',
     "for scheduler/cluster/ alone"),
    ("worker/agent/x.c", '#include "checkpoint/read/read.h"\n', '#include "checkpoint/parts.h"\n',
     "others include checkpoint/checkpoint.h or checkpoint/parts.h"),
    ("checkpoint/format/x.c", '#include "checkpoint/write/plan.h"\n', '#include "checkpoint/checkpoint.h"\n',
     "checkpoint/format/ may not include"),
    ("checkpoint/read/x.c", '#include "checkpoint/write/plan.h"\n', '#include "checkpoint/format/index.h"\n',
     "checkpoint/read/ may not include"),
    ("checkpoint/write/x.c", '#include "checkpoint/tools/recode.h"\n', '#include "checkpoint/read/read.h"\n',
     "checkpoint/write/ may not include"),
    ("server/x.c", "int c = getopt_long(n, v, s, o, NULL);\n", "int c = options_main(&o, n, v, &s, &g, &r);\n",
     "base/options.h"),
    ("worker/engine/model/x.c", '#include "worker/engine/comm/group.h"\n', '#include "worker/engine/comm/comm.h"\n',
     "for worker/engine/comm/ alone"),
    ("worker/engine/comm/group.c", '#include "worker/engine/comm/transport/shm.h"\n',
     '#include "worker/engine/comm/transport/transport.h"\n', "for worker/engine/comm/transport/ alone"),
    ("worker/engine/comm/message.c", '#include "worker/engine/comm/group.h"\n',
     '#include "worker/engine/comm/wait.h"\n',
     "worker/engine/comm/group.h is above"),
    ("worker/engine/comm/transport/x.c", '#include "worker/engine/comm/message.h"\n',
     '#include "worker/engine/comm/failure.h"\n', "worker/engine/comm/message.h is above"),
    ("worker/engine/comm/x.c", '#include "worker/engine/comm/wait.h"\n', None, "has no layer"),
    ("worker/engine/comm/world.c", "if (w->shm)\n", "if (w->memory) /* shm, ucx */\n", "shm is a name of"),
    ("worker/engine/comm/coded_gpu.c", "coded_by_nccl(x);\n", 'say("NCCL", flushmore, ucxy);\n', "nccl is a name of"),
    ("worker/engine/comm/group.c", "p->via != &comm_ucx;\n", "p->via->ops->far;\n", "ucx is a name of"),
])
def test_a_planted_violation_is_found(tmp_path, path, bad, good, says):
    said = lint(tmp_path, path, bad)
    assert said.count("\n") == 1 and path in said and says in said, said
    if good is not None:
        assert lint(tmp_path, path, good).strip() == ""
