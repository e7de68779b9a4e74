/* names - jobs by their names, where a command wants jobs
 *
 * Which of a command's arguments are jobs says its table row: "JOB", "[JOB]", "JOB..." or "JOB|DIR". Of several jobs of
 * one name a command that only looks takes the newest, with a note; one that changes a job (command.acts) is refused.
 */
#ifndef MUSTER_API_CLI_NAMES_H
#define MUSTER_API_CLI_NAMES_H

#include <jansson.h>
#include <stdbool.h>

#define NAMES_ID_MAX 40

struct cli;
struct command;

/* "j17", "17", "j17.3": not looked for among the names. */
bool names_is_job_id(const char *text);

/* Whether an argument of the command, from 0, is a job; *ret_folder: or a folder. */
bool names_wants_job(const struct command *cmd, int arg, bool *ret_folder);

/* The first of a list of jobs that has the name, and how many have it. Borrowed; NULL: none has. */
const json_t *names_choose(const json_t *jobs, const char *name, size_t *ret_n);

/* Put ids in the place of the names among the arguments. Returns 0, or an exit status with the reason said. */
int names_resolve(struct cli *c);

/* What there is of "jobs", "nodes", "projects" or "tokens", for shells to complete: its id, a tab and what people know
 * it by, a line each. Returns 0, an exit status with the reason said, or -1 when there is nothing of that name. */
int names_offer(struct cli *c, const char *what);

/* What names_offer() calls the first argument of a command; NULL: nothing that a server knows. */
const char *names_kind(const struct command *cmd);

#endif
