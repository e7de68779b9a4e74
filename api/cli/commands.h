/* commands - the commands of muster, a function each, named after the file it is in, and what they share */
#ifndef MUSTER_API_CLI_COMMANDS_H
#define MUSTER_API_CLI_COMMANDS_H

#include "api/cli/cli.h"

int jobs_submit(struct cli *c);
int jobs_resubmit(struct cli *c);
int jobs_list(struct cli *c);
int jobs_show(struct cli *c);
int ranks_show(struct cli *c); /* what the ranks of a running job spend their steps on */
int jobs_explain(struct cli *c);
int jobs_act(struct cli *c);
int arrays_retry(struct cli *c);
int arrays_best(struct cli *c);
int arrays_add(const struct cli *c, json_t *doc);   /* what --array says, into a spec */
int arrays_name_tasks(const char *id, json_t *ids); /* "j17.3-9" as each of its tasks, another id as it is */
void arrays_id(const json_t *job, char ret[320]);   /* "j17", "j17[5-99]" of an array, "j17.3" of a task */
void arrays_progress(const json_t *job, char *ret, size_t size);
int jobs_resume(struct cli *c);
int diagnose_main(struct cli *c);
int jobs_cancel(struct cli *c);
int jobs_checkpoint_now(struct cli *c);
int plan_main(struct cli *c);
int profile_run(struct cli *c);
int profile_list(struct cli *c);
int profile_show(struct cli *c);
int reports_predictions(struct cli *c);
int plan_dry_run(struct cli *c, json_t *doc); /* ask the server how doc would run, and print it */
int import_slurm(struct cli *c);
int jobs_scale(struct cli *c);
int jobs_limit(struct cli *c);
int jobs_priority(struct cli *c);
int follow_events(struct cli *c);
int follow_metrics(struct cli *c);
int compare_run(struct cli *c);
int follow_stream(struct cli *c, const char *path, client_event_fn *fn, void *arg); /* to its end, with patience */
/* What happened, less when, to which job and of what type; brief: less what it was before and paths. */
void follow_print_event(const json_t *event, bool brief);
int logs_run(struct cli *c);
int logs_attach(struct cli *c);
int logs_submitted(struct cli *c, const char *job); /* its output until its end, then its outcome */
int exec_run(struct cli *c);
/* Pass bytes between a connection and a session that was opened to a port, until both directions have ended. */
int exec_connect(const struct cli *c, const json_t *session, int connection);
/* What a program beside rank 0 of a job prints, appended to ret. Returns an exit status: its own, or with words. */
int exec_read(struct cli *c, const char *job, const char *const *argv, struct buf *ret);
int forward_run(struct cli *c);
/* Say at which address of this machine a browser finds a port of rank 0, and pass connections on until a signal, which
 * gives CLI_INTERRUPTED, or the job's end. local: 0: any port that is free. */
int forward_page(struct cli *c, const char *job, int local, int remote, const char *path);
int notebook_run(struct cli *c);
int nodes_list(struct cli *c);
int nodes_act(struct cli *c);
int nodes_test(struct cli *c);
int series_node(struct cli *c); /* how a node and its devices did, as curves */
int what_if_ask(struct cli *c); /* when a job would start if something were different */
int nodes_end(struct cli *c);
void nodes_print(const json_t *nodes, bool clear); /* as a table; clear: over another one */
int nodes_remove(struct cli *c);
int nodes_enroll(struct cli *c);
int slurm_up(struct cli *c);
int slurm_provider(struct cli *c);
int allocations_list(struct cli *c);
int nodes_forget(struct cli *c);
int top_run(struct cli *c);
int projects_list(struct cli *c);
int projects_set(struct cli *c);
int audit_run(struct cli *c);
int reports_estimates(struct cli *c);
int reports_usage(struct cli *c);
int history_export(struct cli *c);
int maintenance_add(struct cli *c);
int maintenance_list(struct cli *c);
int maintenance_delete(struct cli *c);
int reservations_add(struct cli *c);
int reservations_list(struct cli *c);
int reservations_delete(struct cli *c);
int projects_show(struct cli *c);
int projects_member(struct cli *c);
int projects_delete(struct cli *c);
int quarantine_list(struct cli *c);
int quarantine_act(struct cli *c);
void quarantine_tell(const json_t *list); /* what a list of jobs says of records that cannot be read */
int secrets_set(struct cli *c);
int secrets_list(struct cli *c);
int secrets_delete(struct cli *c);
int schedules_add(struct cli *c);
int schedules_list(struct cli *c);
int schedules_show(struct cli *c);
int schedules_run(struct cli *c);
int schedules_change(struct cli *c); /* enable, disable */
int schedules_delete(struct cli *c);
int webhooks_add(struct cli *c);
int webhooks_list(struct cli *c);
int webhooks_show(struct cli *c);
int webhooks_change(struct cli *c); /* enable, disable */
int webhooks_delete(struct cli *c);
int webhooks_test(struct cli *c);
int webhooks_deliveries(struct cli *c);
int tokens_create(struct cli *c);
int tokens_list(struct cli *c);
int tokens_revoke(struct cli *c);
int watch_run(struct cli *c);
int watch_job(struct cli *c, const char *job);
/* 0 when the job succeeded; else CLI_FAILED with the cause said, and with its last lines when tail. */
int watch_outcome(struct cli *c, const char *job, bool tail);
int files_checkpoint(struct cli *c);
int local_run(struct cli *c);
int local_sample(struct cli *c);
int local_find_checkpoint(struct cli *c, const char *job_or_dir, bool parent, char *ret, size_t size);
int local_up(struct cli *c);
int local_down(struct cli *c);

#endif
