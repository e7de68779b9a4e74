/* Records of the server's store that it could not read. */
#include <stdio.h>
#include <string.h>

#include "api/cli/cli.h"
#include "api/cli/print.h"
#include "api/cli/commands.h"
#include "base/try.h"

int quarantine_list(struct cli *c)
{
    static const struct cli_table table = {.head = {"RECORD", "SINCE", "WHY"}, .n = 3, .state = -1, .whole = true};
    json_auto_t *answer = NULL;
    json_t *rows, *record;
    size_t i;

    TRY(cli_call(c, "GET", "/v1/quarantine", NULL, NULL, &answer));
    if (c->json)
        return cli_print_json(answer);
    if (json_array_size(json_object_get(answer, "records")) == 0) {
        (void)fprintf(stderr, "nothing is in quarantine: every record of the store can be read\n");
        return 0;
    }
    rows = json_array();
    json_array_foreach (json_object_get(answer, "records"), i, record)
        (void)cli_row(rows, (const char *[]){cli_str(record, "id"), cli_str(record, "at"), cli_str(record, "why")}, 3);
    cli_print_table_new(&table, rows);
    return 0;
}

int quarantine_act(struct cli *c)
{
    bool drop = strcmp(c->cmd->name, "quarantine drop") == 0;
    const char *id = c->arg[0];
    json_auto_t *answer = NULL;
    char path[1024];

    for (const char *p = id; *p; p++)
        if (*p <= ' ' || *p > '~' || strchr("/%?#", *p))
            id = "";
    if (!*id || strlen(id) > 512)
        return cli_fail(CLI_NOT_FOUND, "nothing of that name is in quarantine; `muster quarantine list` shows what is");
    (void)snprintf(path, sizeof(path), "/v1/quarantine/%s%s", id, drop ? "" : "/retry");
    TRY(cli_call(c, drop ? "DELETE" : "POST", path, NULL, NULL, &answer));
    if (c->json)
        return cli_print_json(answer);
    (void)printf("%s %s\n", id, drop ? "is gone" : "was read and is there again");
    return 0;
}

void quarantine_tell(const json_t *list)
{
    const json_t *summary = json_object_get(list, "quarantine"), *jobs = json_object_get(summary, "jobs"), *job;
    size_t i;

    if (!json_is_object(summary))
        return;
    (void)fprintf(stderr, "%lld record%s of the store cannot be read", cli_int(summary, "records"),
                  cli_int(summary, "records") == 1 ? "" : "s");
    json_array_foreach (jobs, i, job)
        (void)fprintf(stderr, "%s%s", i == 0 ? ", among them of " : ", ", json_string_value(job));
    (void)fprintf(stderr, "; an admin sees why with `muster quarantine list`\n");
}
