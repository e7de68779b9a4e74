/* import-slurm: a batch script of Slurm as a spec file, on standard output. */
#include <stdio.h>
#include <string.h>

#include "api/cli/cli.h"
#include "api/cli/commands.h"
#include "api/cli/print.h"
#include "api/cli/slurm.h"
#include "base/try.h"

static void print_value(const json_t *v, int depth);

/* Text of several lines as a literal block, else as JSON writes it, which is YAML. */
static void print_text(const char *s, int depth)
{
    json_auto_t *text = json_string(s);
    const char *at = s;
    bool plain = strchr(s, '\n') != NULL && s[strlen(s) - 1] == '\n' && (strlen(s) < 2 || s[strlen(s) - 2] != '\n');

    for (const char *p = s; *p; p++)
        plain = plain && ((unsigned char)*p >= ' ' || *p == '\n' || *p == '\t') && *p != 127;
    if (!plain) {
        (void)json_dumpf(text, stdout, JSON_ENCODE_ANY);
        (void)putchar('\n');
        return;
    }
    (void)printf("|2\n");
    while (*at) {
        size_t len = strcspn(at, "\n");

        if (len)
            (void)printf("%*s%.*s", 2 * depth, "", (int)len, at);
        (void)putchar('\n');
        at += len + 1;
    }
}

static void print_members(const json_t *o, int depth)
{
    const char *key;
    json_t *v;

    json_object_foreach ((json_t *)o, key, v) {
        (void)printf("%*s%s:", 2 * depth, "", key);
        print_value(v, depth + 1);
    }
}

/* What stands after "key:" or "-". */
static void print_value(const json_t *v, int depth)
{
    json_t *e;
    size_t i;

    if (json_is_object(v)) {
        (void)putchar('\n');
        print_members(v, depth);
    } else if (json_is_array(v)) {
        (void)putchar('\n');
        json_array_foreach (v, i, e) {
            (void)printf("%*s-", 2 * depth, "");
            print_value(e, depth + 1);
        }
    } else if (json_is_string(v)) {
        (void)putchar(' ');
        print_text(json_string_value(v), depth);
    } else {
        (void)putchar(' ');
        (void)json_dumpf(v, stdout, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
        (void)putchar('\n');
    }
}

int import_slurm(struct cli *c)
{
    json_auto_t *spec = NULL, *notes = NULL;
    BUF_CLEAR_AUTO struct buf script;
    struct merr err = {""};
    json_t *note;
    size_t i;

    buf_init(&script, SLURM_SCRIPT_MAX);
    if (cli_read_file(c->arg[0], &script, &err) < 0)
        return cli_fail(CLI_FAILED, "%s", err.text);
    if (strlen(buf_text(&script)) != script.len)
        return cli_fail(CLI_FAILED, "%s has a NUL byte: it is no script", c->arg[0]);
    if (slurm_read(buf_text(&script), &spec, &notes, &err) < 0)
        return cli_fail(CLI_FAILED, "%s: %s", c->arg[0], err.text);
    if (c->json)
        return cli_print_json_new(json_pack("{s:O, s:O}", "spec", spec, "notes", notes));
    json_array_foreach (notes, i, note) {
        (void)printf("%s#   line %lld, %s: %s\n", i == 0 ? "# Without a counterpart in Muster:\n" : "",
                     cli_int(note, "line"), cli_str(note, "what"), cli_str(note, "text"));
        (void)fprintf(stderr, "%s:%lld: %s: %s\n", c->arg[0], cli_int(note, "line"), cli_str(note, "what"),
                      cli_str(note, "text"));
    }
    print_members(spec, 0);
    return 0;
}
