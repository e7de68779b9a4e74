/* Jobs by their names, where a command wants jobs: an argument that is no id is looked for among the names. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "api/cli/cli.h"
#include "api/cli/names.h"
#include "api/cli/print.h"
#include "base/try.h"

#define LOOKED_AT_MAX 10000 /* jobs with the name in theirs that are looked at, the newest first */

bool names_is_job_id(const char *text)
{
    size_t n;

    text += *text == 'j';
    n = strspn(text, "0123456789");
    return n > 0 && (text[n] == '\0' || text[n] == '.');
}

bool names_wants_job(const struct command *cmd, int arg, bool *ret_folder)
{
    const char *word = cmd->args;

    *ret_folder = false;
    for (int i = 0; i < arg && !strstr(word, "JOB..."); i++) {
        word += strcspn(word, " ");
        word += strspn(word, " ");
    }
    word += *word == '[';
    if (strncmp(word, "JOB", 3) != 0)
        return false;
    *ret_folder = strncmp(word, "JOB|DIR", 7) == 0;
    return word[3] == '\0' || strchr(" ].|", word[3]) != NULL;
}

const json_t *names_choose(const json_t *jobs, const char *name, size_t *ret_n)
{
    const json_t *newest = NULL;
    json_t *job;
    size_t i;

    *ret_n = 0;
    json_array_foreach (jobs, i, job) {
        if (strcmp(cli_str(job, "name"), name) != 0)
            continue;
        newest = newest ? newest : job;
        ++*ret_n;
    }
    return newest;
}

/* The id of the job of that name into *ret; "": there is none. Returns an exit status. */
static int find(struct cli *c, const char *name, char ret[NAMES_ID_MAX])
{
    json_auto_t *page = NULL;
    const json_t *job;
    char filters[160];
    size_t n;

    (void)snprintf(filters, sizeof(filters), "&fields=id,name&name~=%s", name);
    TRY(cli_pages(c, "/v1/jobs", filters, "jobs", LOOKED_AT_MAX, &page));
    job = names_choose(json_object_get(page, "jobs"), name, &n);
    *ret = '\0';
    if (n == 0)
        return 0;
    if (n > 1 && c->cmd->acts)
        return cli_fail(CLI_USAGE, "%zu jobs are called '%s', the newest of them is %s; say which by its id", n, name,
                        cli_str(job, "id"));
    if (n > 1)
        (void)fprintf(stderr, "muster: %s, the newest of %zu jobs called '%s'\n", cli_str(job, "id"), n, name);
    (void)snprintf(ret, NAMES_ID_MAX, "%s", cli_str(job, "id"));
    return 0;
}

int names_resolve(struct cli *c)
{
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    struct stat st;

    for (int i = 0; i < c->n; i++) {
        const char *word = c->given.arg[i];
        char id[NAMES_ID_MAX];
        bool folder;

        if (!names_wants_job(c->cmd, i, &folder) || names_is_job_id(word) || !*word || strlen(word) > 63 ||
            strspn(word, good) != strlen(word) || (folder && stat(word, &st) == 0))
            continue;
        TRY(find(c, word, id));
        if (!*id && folder)
            continue; /* its own words tell what is no folder either */
        if (!*id)
            return cli_fail(CLI_NOT_FOUND, "no job is called '%s'; `muster list` shows those there are", word);
        if (!c->ids)
            c->ids = json_array();
        if (!c->ids || json_array_append_new(c->ids, json_string(id)) < 0)
            return cli_fail(CLI_FAILED, "no memory for the ids of the jobs");
        c->given.arg[i] = json_string_value(json_array_get(c->ids, json_array_size(c->ids) - 1));
    }
    return 0;
}

/* --- completion ---------------------------------------------------------------------------------------- */

#define OFFERED_MAX 500

static const struct kind {
    const char *what, *path, *id, *words[2];
} kinds[] = {
    {"jobs", "/v1/jobs", "id", {"name", "state"}},
    {"nodes", "/v1/nodes", "id", {"state", "address"}},
    {"projects", "/v1/projects", "name", {"class", NULL}},
    {"tokens", "/v1/tokens", "id", {"user", "role"}},
};

int names_offer(struct cli *c, const char *what)
{
    json_auto_t *page = NULL;
    json_t *item;
    size_t i, k = 0;

    while (k < sizeof(kinds) / sizeof(*kinds) && strcmp(kinds[k].what, what) != 0)
        k++;
    if (k == sizeof(kinds) / sizeof(*kinds))
        return -1;
    if (strcmp(what, "jobs") == 0)
        TRY(cli_pages(c, kinds[k].path, "&fields=id,name,state", what, OFFERED_MAX, &page));
    else
        TRY(cli_call(c, "GET", kinds[k].path, NULL, NULL, &page));
    json_array_foreach (json_object_get(page, what), i, item) {
        cli_print_text(cli_str(item, kinds[k].id));
        for (int w = 0; w < 2 && kinds[k].words[w]; w++) {
            (void)fputs(w ? ", " : "\t", stdout);
            cli_print_text(cli_str(item, kinds[k].words[w]));
        }
        (void)putchar('\n');
    }
    return 0;
}

const char *names_kind(const struct command *cmd)
{
    bool folder;

    return names_wants_job(cmd, 0, &folder)         ? "jobs"
           : strncmp(cmd->args, "NODE", 4) == 0     ? "nodes"
           : strncmp(cmd->name, "project ", 8) == 0 ? (*cmd->args ? "projects" : NULL)
           : strncmp(cmd->args, "TOKEN", 5) == 0    ? "tokens"
                                                    : NULL;
}
