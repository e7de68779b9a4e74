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
    ("base/x.c", "    if (r == 0)\n        r = x();\n",
     "    TRY(x());\n    if (r == 0)\n        x();\n", "a chain of codes"),
    ("scheduler/x.c", "    if (!r && x) {\n        r = x();\n    }\n", "    if (r < 0)\n        r = x();\n",
     "a chain of codes"),
    ("worker/agent/x.c", "    if (r == 0)\n        r = x();\n    if (r == 0 && y)\n        r = z(\n            1);\n"
     "    if (!r)\n        r = y();\n", "    if (r == 0)\n        r = x();\n    if (r == 0)\n        r = y();\n",
     "a chain of codes"),
    ("checkpoint/read/x.c", "    if (rc == 0)\n        rc = x();\n" * 3, "    TRY(x());\n" * 3, "a chain of codes"),
    ("worker/agent/x.c", "    BUF_CLEAR_AUTO struct buf b;\n\n    if (x())\n        return r;\n    buf_init(&b);\n",
     "    BUF_CLEAR_AUTO struct buf b;\n\n    buf_init(&b);\n    TRY(x());\n", "'b' has no value yet"),
    ("base/x.c", "    IO_CLOSE_AUTO int v = -1, w;\n\n    TRY(x());\n    w = y();\n",
     "    IO_CLOSE_AUTO int v = -1, w = -1;\n\n    TRY(x());\n", "'w' has no value yet"),
    ("worker/agent/x.c", "#include <curl/curl.h>\n", '#include "api/client/calls.h"\n', "api/client/calls.h"),
])
def test_a_planted_violation_is_found(tmp_path, path, bad, good, says):
    said = lint(tmp_path, path, bad)
    assert said.count("\n") == 1 and path in said and says in said, said
    if good is not None:
        assert lint(tmp_path, path, good).strip() == ""


@pytest.mark.parametrize("path, bad, good, says", [
    ("base/x.c", '#include "compress/codec.h"\n', '#include "base/buf.h"\n', "see the floor table"),
    ("compress/x.c", '#include "checkpoint/checkpoint.h"\n', '#include "base/buf.h"\n', "see the floor table"),
    ("scheduler/x.c", '#include "api/spec.h"\n', '#include "base/buf.h"\n', "see the floor table"),
    ("api/x.c", '#include "server/store/store.h"\n', '#include "scheduler/plan/search.h"\n', "see the floor table"),
    ("worker/agent/x.c", '#include "server/store/store.h"\n', '#include "api/spec.h"\n', "see the floor table"),
    ("server/http/x.h", '/* x - a */\n#include "worker/flight/flight.h"\n', '/* x - a */\n#include "api/spec.h"\n',
     "see the floor table"),
    ("worker/flight/x.c", '#include "worker/snapshot/parity.h"\n', '#include "worker/flight/flight.h"\n',
     "worker/flight/ may not include"),
    ("worker/snapshot/x.c", '#include "worker/agent/ranks.h"\n', '#include "checkpoint/parts.h"\n',
     "worker/snapshot/ may not include"),
    ("worker/agent/x.c", '#include "worker/engine/comm/comm.h"\n', '#include "worker/flight/flight.h"\n',
     "worker/agent/ may not include"),
    ("worker/engine/kernels/x.c", '#include "worker/engine/comm/comm.h"\n',
     '#include "worker/engine/kernels/kernels.h"\n', "worker/engine/kernels/ may not include"),
    ("base/x.c", "    strcpy(a, b);\n", "    /* strcpy(a, b); */ say(\"strcpy(\");\n", "banned call strcpy()"),
    ("tests/x.c", "    sleep(1);\n", "    x->sleep(1);\n", "banned call sleep()"),
    ("scheduler/x.c", "    now = clock_mono_us();\n", "    clock(now_us);\n", "scheduler/ is pure"),
    ("scheduler/x.c", "    x = rand();\n", "    x = seq_random_unit(&state);\n", "scheduler/ is pure"),
    ("base/x.h", "#ifndef X\n", "/* x - a thing */\n", "a header opens with"),
    ("base/x.h", "/* x - a thing */\n" + "int a(void (*f)(int),\n      int b);\n" * 31,
     "/* x - a thing */\n" + "int a(void);\n" * 30 + "typedef int b(void);\nstatic inline int c(void)\n{\n    d();\n"
     "}\n",
     "31 functions in a header"),
    ("base/x.c", "/" + "* " + "x" * 116 + "*/\n", "/" + "* " + "x" * 115 + "*/\n", "longer than 120 columns"),
    ("base/x.c", "\n" * 900, "\n" * 899, "longer than 900 lines"),
    ("base/x.c", "int a; \n", "int a;\n", "space at the end"),
    ("tests/x.py", "\tpass\n", "    pass\n", "tab"),
    ("base/x.c", "/* TO" "DO: more */\n", "/* to do more */\n", "unfinished"),
])
def test_a_planted_violation_of_floors_rooms_calls_or_layout_is_found(tmp_path, path, bad, good, says):
    said = lint(tmp_path, path, bad)
    assert said.count("\n") == 1 and path in said and says in said, said
    assert lint(tmp_path, path, good).strip() == ""


OF_MODULE = '#include "%s.h"\n\nstatic void x(void)\n{\n    %s\n}\n'


@pytest.mark.parametrize("path, bad, good, says", [
    ("server/http/x", '#include "server/store/store.h"', '#include "server/http/http.h"', "may not include"),
    ("server/store/x", '#include "server/control/turn.h"', '#include "server/cluster/job.h"', "may not include"),
    ("server/store/x", '#include "server/http/call.h"', '#include "server/store/store.h"', "may not include"),
    ("server/cluster/gpus", '#include "server/control/state.h"', '#include "server/cluster/job.h"', "may not include"),
    ("server/cluster/gpus", '#include "server/http/call.h"', '#include "scheduler/cluster/slow.h"', "may not include"),
    ("server/cluster/node", '#include "server/cluster/cluster.h"', '#include "server/cluster/job.h"', "is above"),
    ("server/control/round", '#include "server/control/dispatch.h"', '#include "server/control/state.h"', "is above"),
    ("server/control/x", '#include "server/control/state.h"', None, "has no layer"),
])
def test_a_room_of_the_server_includes_what_is_below_it(tmp_path, path, bad, good, says):
    own = f'#include "{path}.h"\n'
    assert says in lint(tmp_path, path + ".c", own + bad + "\n")
    if good is not None:
        assert lint(tmp_path, path + ".c", own + good + "\n") == "\n"


@pytest.mark.parametrize("path, bad, says", [
    ("server/control/dispatch", "(void)job_transition(j, cause, now, &event, err);", "lets a job change"),
    ("server/control/jobs", "(void)job_apply(j, event);", "lets a job change"),
    ("server/store/job_store", "(void)job_apply(j, event);", "lets a job change"),
    ("server/control/round", "now = clock_wall_us();", "only the turn reads the clock"),
    ("server/control/events", "now = clock_read_mono_us(clock);", "only the turn reads the clock"),
    ("server/control/plans", "now = time(NULL);", "only the turn reads the clock"),
    ("server/control/enroll", "(void)getrandom(raw, 16, 0);", "no chance is drawn here"),
    ("server/cluster/links", "(void)clock_gettime(CLOCK_REALTIME, &ts);", "no clock is read here"),
    ("server/cluster/slots", "store_put(s, STORE_NODES, name, text);", "no store is called here"),
    ("server/control/dispatch", "job_store_put(s, 1, 0, 1, record, NULL);", "decisions put nothing into the store"),
    ("server/control/reports", "history_add_note(s, 1, text);", "decisions put nothing into the store"),
    ("server/control/timeline", "history_add_note(s, 1, text);", "decisions put nothing into the store"),
    ("server/control/salvage", "aside_show_job(s, 1, false);", "decisions put nothing into the store"),
    ("server/control/jobs", "(void)job_store_find_submit(s, key, &id, &hash, err);", "decisions read nothing"),
    ("server/control/auth", "(void)store_read_rows(s, STORE_TOKENS, &rows, err);", "decisions read nothing"),
    ("server/control/retire", "(void)history_read_all(s, 0, 1, &rows, &end, err);", "decisions read nothing"),
    ("server/control/jobs", "(void)store_commit(s, NULL, err);", "only the turn leads the store"),
])
def test_a_seam_of_the_server_is_where_it_is_said_to_be(tmp_path, path, bad, says):
    assert says in lint(tmp_path, path + ".c", OF_MODULE % (path, bad))


@pytest.mark.parametrize("path, good", [
    ("server/control/change", "(void)job_transition(j, cause, now, &event, err);"),
    ("server/control/turn", "now = clock_read_mono_us(clock);"),
    ("server/control/round", "clock_rfc3339(now, text);"),
    ("server/control/records", "store_put(s, STORE_NODES, name, text);"),
    ("server/control/timeline", "(void)history_read_all(s, 0, 1, &rows, &end, err);"),
    ("server/control/auth_load", "store_put(s, STORE_TOKENS, name, text);"),
    ("server/http/http", "now = clock_mono_us();"),
])
def test_and_there_it_may_be(tmp_path, path, good):
    assert lint(tmp_path, path + ".c", OF_MODULE % (path, good)) == "\n"


def test_a_module_of_the_server_has_its_header_and_its_prefix(tmp_path):
    path = "server/control/polls.c"
    own = '#include "server/control/polls.h"\n\n'

    assert "include server/control/polls.h first" in lint(tmp_path, path, "int polls_x(void)\n{\n    return 0;\n}\n")
    assert "agents_x() has not its file's name" in lint(tmp_path, path,
                                                        own + "int agents_x(int a,\n             int b)\n{\n}\n")
    assert "view() has not its file's name" in lint(tmp_path, path, own + "struct x *view(void)\n{\n}\n")
    assert lint(tmp_path, path, own + "int polls_x(int (*fn)(void))\n{\n}\n\nstatic int x(void)\n{\n}\n") == "\n"
    assert lint(tmp_path, "server/http/http_req.c",
                '#include "server/http/http_req.h"\n\nint http_x(void)\n{\n}\n') == "\n"


@pytest.mark.parametrize("bad, good, says", [
    ("scheduler/sim/test_split", "scheduler/plan/test_split", "split.c is in scheduler/plan/"),
    ("scheduler/test_split", "scheduler/sim/test_many_at_once", "split.c is in scheduler/plan/"),
    ("scheduler/test_many_at_once", "scheduler/sim/test_many_at_once", "scheduler/ is no room with code"),
    ("scheduler/gone/test_many", "scheduler/plan/test_many", "scheduler/gone/ is no room with code"),
    ("worker/model/test_group", "worker/comm/test_group", "group.c is in worker/engine/comm/"),
])
def test_a_unit_test_stands_where_its_module_stands(tmp_path, bad, good, says):
    for module in ("scheduler/plan/split.c", "scheduler/sim/sim.c", "worker/engine/comm/group.c",
                   "worker/engine/model/stage.c"):
        (tmp_path / module).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / module).write_text("")
    assert says in lint(tmp_path, f"tests/unit/{bad}.c", "")
    assert lint(tmp_path, f"tests/unit/{good}.c", "") == "\n"


@pytest.mark.parametrize("bad, good", [
    ("The giver sends its chunks.", "The source node sends its chunks."),
    ("Nodes of the run before, or\ngivers.", "The field `givers` lists source nodes."),
    ("A job that was ousted waits.", "```json\n{\"givers\": []}\n```"),
    ("Failures are pardoned.", "A failure is not counted."),
    ("Helpers doze.", "Helpers wait."),
    ("Parity mends a chunk.", "Parity repairs a chunk, as recommended."),
    ("The final held-out loss.", "The final evaluation loss, on held-out documents."),
])
def test_a_page_of_the_docs_has_the_words_of_the_field(tmp_path, bad, good):
    assert "is a private word" in lint(tmp_path, "docs/x.md", bad + "\n")
    assert lint(tmp_path, "docs/x.md", good + "\n") == "\n"


@pytest.mark.parametrize("bad, good", [
    ("int a_giver_new(void);\n", 'say("the field \'givers\' of", "givers");\n'),
    ("int health_pardon(void);\n", "int health_forgive(void);\n"),
    ("/* It was ousted. */\n", "/* The job was preempted, joust or not. */\n"),
    ('say("mends it");\n', 'say("recommend amends");\n'),
    ("bool doze;\n", "bool dozens;\n"),
])
def test_code_has_the_words_of_the_field_in_names_comments_and_messages(tmp_path, bad, good):
    assert "is a private word" in lint(tmp_path, "base/x.c", bad)
    assert lint(tmp_path, "base/x.c", good) == "\n"
