#include "api/protocol/reference.h"

#include <errno.h>

#include "api/protocol/assignment.h"
#include "api/protocol/evidence.h"
#include "api/protocol/exit.h"
#include "api/protocol/incident.h"
#include "api/protocol/join.h"
#include "api/protocol/protocol.h"
#include "api/protocol/registration.h"
#include "api/protocol/rendezvous.h"
#include "api/protocol/report.h"

const struct wire_message *const reference_messages[] = {
    &registration_message,
    &registration_answer_message,
    &assignment_set_message,
    &assignment_message,
    &assignment_layout_message,
    &assignment_rank_message,
    &assignment_session_message,
    &report_message,
    &report_run_message,
    &report_rank_message,
    &report_group_message,
    &report_piece_message,
    &report_answer_message,
    &report_acks_message,
    &report_ack_message,
    &report_ref_message,
    &exit_message,
    &rendezvous_message,
    &rendezvous_entry_message,
    &join_message,
    &join_answer_message,
    &join_renewal_message,
    &join_renewed_message,
    &evidence_message,
    &evidence_rank_message,
    &incident_message,
    &incident_verdict_message,
    &incident_rank_message,
    NULL,
};

static const struct {
    enum exit_cause cause;
    const char *what;
} causes[] = {
    {EXIT_CAUSE_PROGRAM, "the program's own affair: status and signal are all that is known"},
    {EXIT_CAUSE_DONE, "its work is done"},
    {EXIT_CAUSE_DRAINED, "it was told to save and end, and did; of a command: it ended with status 0"},
    {EXIT_CAUSE_USER, "the spec, the data or the model is at fault: not tried again by default"},
    {EXIT_CAUSE_INTERNAL, "a fault of Muster itself"},
    {EXIT_CAUSE_NODE, "its machine (disk, memory, device), or the rank could not be started or was lost"},
    {EXIT_CAUSE_ABORTED, "it was told to give up, or lost a peer: never the first cause"},
    {EXIT_CAUSE_MEMORY, "the kernel ended it, since it took more memory than it may: its owner's affair"},
    {EXIT_CAUSE_NUMBERS, "its loss or a gradient is no finite number, or replicas do not agree; both may be right "
                         "from an older checkpoint"},
    {EXIT_CAUSE_REPLICA, "its weights are not those that most replicas agree on: its device or memory is suspected"},
};

json_t *reference_schemas(void)
{
    json_t *all = json_object();

    for (const struct wire_message *const *m = reference_messages; all && *m; m++)
        if (wire_schema(*m, all) < 0) {
            json_decref(all);
            return NULL;
        }
    return all;
}

int reference_print(struct buf *out)
{
    (void)buf_printf(out,
                     "## Fields of the messages\n\n"
                     "Printed from the tables in `api/protocol/` by `make docs/protocol.md`. Version of the protocol: "
                     "%d; versions from %d on are read.\nA field that is left out, or null, has the value given for "
                     "that; fields that are not listed are passed over.\n",
                     PROTOCOL_VERSION, PROTOCOL_OLDEST);
    for (const struct wire_message *const *m = reference_messages; *m; m++) {
        (void)buf_printf(out, "\n### %s\n\n%s\n\n", (*m)->name, (*m)->what);
        wire_print(*m, out);
    }
    (void)buf_addstr(out, "\n### cause\n\nOf an exit; the status is what `muster-train` ends with, for those who start "
                          "it by hand.\n\n| cause | status | what |\n|---|---|---|\n");
    for (size_t i = 0; i < sizeof(causes) / sizeof(causes[0]); i++) {
        (void)buf_printf(out, "| `%s` | ", exit_cause_names[causes[i].cause]);
        if (causes[i].cause == EXIT_CAUSE_PROGRAM || causes[i].cause == EXIT_CAUSE_MEMORY)
            (void)buf_addstr(out, "any");
        else
            (void)buf_printf(out, "%d", exit_status(causes[i].cause));
        (void)buf_printf(out, " | %s |\n", causes[i].what);
    }
    return buf_failed(out) ? -ENOMEM : 0;
}
