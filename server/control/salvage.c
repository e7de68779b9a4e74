#include "server/control/salvage.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "server/control/events.h"
#include "server/control/load.h"
#include "server/control/quarantine.h"
#include "server/control/retire.h"
#include "server/control/state.h"
#include "server/http/call.h"

static void note(struct core *c, struct call *call, const char *code, const json_t *record)
{
    char actor[80], text[640];

    (void)snprintf(actor, sizeof(actor), "user:%s", http_identity(call->req)->user);
    (void)snprintf(text, sizeof(text), "record %s", json_string_value(json_object_get(record, "id")));
    events_note(c, 0, "", "quarantine", 0, actor, code, text, json_deep_copy(record));
}

void salvage_list(struct core *c, struct call *call)
{
    call_answer_new(call, 200, json_pack("{s:o, s:n}", "records", quarantine_list(c), "next_cursor"));
}

void salvage_retry(struct core *c, struct call *call)
{
    const char *id = http_param(call->req, 0);
    json_auto_t *record = json_incref((json_t *)quarantine_find(c, id)); /* it leaves the list */
    struct merr err = {""};
    int r = load_again(c, id, &err);

    if (r == 0) {
        note(c, call, "read-again", record);
        call_answer_new(call, 200, json_incref(record));
    } else {
        call_problem(call,
                     r == -ENOENT                   ? 404
                     : r == -EINVAL || r == -EEXIST ? 409
                                                    : 503,
                     r == -ENOENT   ? "unknown-record"
                     : r == -EINVAL ? "unreadable"
                     : r == -EEXIST ? "replaced"
                                    : "store",
                     "%s", err.text);
    }
}

void salvage_drop(struct core *c, struct call *call)
{
    const char *id = http_param(call->req, 0), *kind;
    json_auto_t *record = json_incref((json_t *)quarantine_find(c, id));

    if (!record) {
        call_problem(call, 404, "unknown-record",
                     "nothing of the name '%s' is in quarantine; `muster quarantine list` shows what is", id);
        return;
    }
    kind = json_string_value(json_object_get(record, "kind"));
    if (kind && strcmp(kind, "job") == 0 &&
        !retire_job(c, job_id_parse(json_string_value(json_object_get(record, "name"))))) {
        call_problem(call, 503, "no-memory", "out of memory");
        return;
    }
    quarantine_forget(c, id);
    note(c, call, "dropped", record);
    call_answer_new(call, 200, json_incref(record));
}
