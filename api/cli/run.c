/* run: train without a server. The spec is checked and written to the run's folder, as it was changed. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/cli/cli.h"
#include "api/cli/commands.h"
#include "api/cli/slurm_run.h"
#include "base/io.h"
#include "base/try.h"

/* Write the spec to DIR/spec.json, whose path ret gets. */
static int keep_spec(const json_t *doc, const char *dir, char *ret, size_t size)
{
    struct merr err = {""};
    char *text = json_dumps(doc, JSON_INDENT(2));
    int n = snprintf(ret, size, "%s/spec.json", dir);
    bool bad;

    if (!text || n < 0 || (size_t)n >= size) {
        free(text);
        return cli_fail(CLI_FAILED, text ? "the path of --dir is too long" : "no memory for the spec");
    }
    bad = io_mkdirs(dir, 0777, &err) < 0 || io_write_file(ret, text, strlen(text), 0666, &err) < 0;
    free(text);
    return bad ? cli_fail(CLI_FAILED, "%s", err.text) : 0;
}

int local_run(struct cli *c)
{
    const char *dir = cli_option(c, "dir");
    char file[PATH_MAX], devices[16];
    const char *argv[16] = {"muster-agent", "run", file};
    long n = cli_number(c, "devices", 0);
    json_auto_t *doc = NULL;
    size_t k = 3;

    if (!dir)
        return cli_fail(CLI_USAGE, "want --dir DIR, where metrics, logs and checkpoints go");
    TRY(cli_read_spec(c, c->arg[0], &doc));
    TRY(cli_check_spec(c->arg[0], doc));
    TRY(keep_spec(doc, dir, file, sizeof(file)));
    if (slurm_run_here())
        return slurm_run(file, dir, cli_option(c, "devices"));
    argv[k++] = "--dir";
    argv[k++] = dir;
    if (n) {
        (void)snprintf(devices, sizeof(devices), "%ld", n);
        argv[k++] = "--devices";
        argv[k++] = devices;
    }
    if (cli_option(c, "profile")) {
        argv[k++] = "--profile";
        argv[k++] = cli_option(c, "profile");
    }
    if (cli_option(c, "threads")) {
        argv[k++] = "--threads";
        argv[k++] = cli_option(c, "threads");
    }
    if (cli_option(c, "resume"))
        argv[k++] = "--resume";
    return cli_exec("muster-agent", argv);
}
