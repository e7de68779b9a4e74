/* checkpoint ...: what can be done with checkpoints in a folder, without a server. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/cli/cli.h"
#include "api/cli/print.h"
#include "api/cli/commands.h"
#include "api/hf.h"
#include "base/try.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/parts.h"

static int failed(int code, const struct merr *err)
{
    return cli_fail(code == -ENOENT ? CLI_NOT_FOUND : CLI_FAILED, "%s", err->text);
}

/* The checkpoint at path: one itself, or the newest good one of a folder of checkpoints. */
static int open_at(const char *path, struct mck **ret)
{
    struct merr err = {""};
    char manifest[4096];
    struct stat st;
    uint64_t step = 0;
    int r;

    if (stat(path, &st) < 0)
        return cli_fail(errno == ENOENT ? CLI_NOT_FOUND : CLI_FAILED, "cannot open '%s': %s", path, strerror(errno));
    (void)snprintf(manifest, sizeof(manifest), "%s/MANIFEST", path);
    if (stat(manifest, &st) == 0) {
        r = mck_open_path(path, ret, &err);
        return r < 0 ? failed(r, &err) : 0;
    }
    r = mck_latest(path, &step, NULL, &err);
    if (r < 0)
        return failed(r, &err);
    if (r == 0)
        return cli_fail(CLI_NOT_FOUND, "there is no whole checkpoint in '%s'", path);
    r = mck_open(path, step, ret, &err);
    return r < 0 ? failed(r, &err) : 0;
}

static int list(struct cli *c, const char *dir)
{
    static const struct cli_table table = {
        .head = {"STEP", "MIB", "ON DISK", "CREATED", "PATH"}, .n = 5, .right = 7, .state = -1, .whole = true};
    struct merr err = {""};
    json_t *all = NULL, *rows, *one;
    size_t i;
    int r = mck_list(dir, &all, &err);

    if (r < 0)
        return failed(r, &err);
    if (c->json)
        return cli_print_json_new(json_pack("{s:o}", "checkpoints", all));
    if (json_array_size(all) == 0)
        (void)fprintf(stderr, "no checkpoints in '%s'\n", dir);
    rows = json_array();
    json_array_foreach (all, i, one) {
        char step[24], mib[24], stored[24], created[32];
        const json_t *at = json_object_get(one, "created");

        (void)snprintf(step, sizeof(step), "%lld", cli_int(one, "step"));
        (void)snprintf(mib, sizeof(mib), "%.1f", cli_real(one, "bytes") / 1048576);
        (void)snprintf(stored, sizeof(stored), "%.1f", cli_real(one, "stored_bytes") / 1048576);
        (void)snprintf(created, sizeof(created), "%.24s", json_is_string(at) ? json_string_value(at) : "-");
        (void)cli_row(rows, (const char *[]){step, mib, stored, created, cli_str(one, "path")}, 5);
    }
    if (i > 0)
        cli_print_table_new(&table, rows);
    else
        json_decref(rows);
    json_decref(all);
    return CLI_DONE;
}

static int inspect(struct cli *c, struct mck *k)
{
    static const struct cli_table table = {
        .head = {"ROLE", "TYPE", "SHAPE", "TENSOR"}, .n = 4, .state = -1, .whole = true};
    json_t *doc = mck_inspect(k), *t, *rows;
    size_t i;

    if (!doc)
        return cli_fail(CLI_FAILED, "no memory to inspect the checkpoint");
    if (c->json)
        return cli_print_json_new(doc);
    (void)printf("step %llu, %zu files, %zu tensors\n\n", (unsigned long long)mck_step(k),
                 json_array_size(json_object_get(doc, "files")), json_array_size(json_object_get(doc, "tensors")));
    rows = json_array();
    json_array_foreach (json_object_get(doc, "tensors"), i, t) {
        char *shape = json_dumps(json_object_get(t, "shape"), JSON_COMPACT);

        (void)cli_row(
            rows, (const char *[]){cli_str(t, "role"), cli_str(t, "dtype"), shape ? shape : "", cli_str(t, "name")}, 4);
        free(shape);
    }
    cli_print_table_new(&table, rows);
    json_decref(doc);
    return CLI_DONE;
}

/* On a terminal: how much is read, redrawn as the whole percent changes. */
static void show_progress(void *arg, uint64_t done, uint64_t all)
{
    static const char bar[] = "########################################";
    int *shown = arg, percent = all ? (int)(done * 100 / all) : 100;

    if (percent == *shown)
        return;
    *shown = percent;
    (void)fprintf(stderr, "\r[%-40.*s] %3d %% of %.0f MiB", percent * 40 / 100, bar, percent, (double)all / 1048576);
}

/* A bar for what is done with k, from here until end_bar. */
static void begin_bar(struct mck *k, int *shown)
{
    *shown = -1;
    if (isatty(STDERR_FILENO))
        mck_watch(k, show_progress, shown);
}

/* It makes room for the outcome. */
static void end_bar(struct mck *k, int shown)
{
    mck_watch(k, NULL, NULL);
    if (shown >= 0)
        (void)fprintf(stderr, "\r\033[K");
}

static int verify(struct cli *c, struct mck *k)
{
    struct merr err = {""};
    json_t *report = NULL;
    int shown, r;

    begin_bar(k, &shown);
    r = mck_verify(k, &report, &err);
    end_bar(k, shown);
    if (c->json && report)
        (void)cli_print_json(report);
    else if (r == 0)
        (void)printf("step %llu is whole\n", (unsigned long long)mck_step(k));
    json_decref(report);
    if (r == -EBADMSG)
        return cli_fail(CLI_FAILED, "%s\nmuster checkpoint repair says what can be done", err.text);
    return r < 0 ? failed(r, &err) : CLI_DONE;
}

static int digest(struct cli *c, struct mck *k)
{
    struct merr err = {""};
    char hex[33];
    int shown, r;

    begin_bar(k, &shown);
    r = mck_digest(k, hex, &err);
    end_bar(k, shown);
    if (r < 0)
        return failed(r, &err);
    if (c->json) {
        json_t *doc = json_pack("{s:I,s:s}", "step", (json_int_t)mck_step(k), "digest", hex);

        r = cli_print_json(doc);
        json_decref(doc);
        return r;
    }
    (void)printf("%s  step %llu\n", hex, (unsigned long long)mck_step(k));
    return CLI_DONE;
}

static void print_difference(const json_t *o)
{
    const char *name = cli_str(o, "name"), *role = cli_str(o, "role"), *what = cli_str(o, "what");

    if (strcmp(what, "values") != 0) {
        (void)printf("%s (%s): %s%s\n", name, role, what, strncmp(what, "only", 4) == 0 ? "" : " differs");
        return;
    }
    (void)printf("%s (%s): %lld of %lld elements differ, the first is %lld", name, role, cli_int(o, "different"),
                 cli_int(o, "elements"), cli_int(o, "first"));
    if (json_is_number(json_object_get(o, "largest")))
        (void)printf(", the most by %.3g", cli_real(o, "largest"));
    (void)printf("\n");
}

/* As diff(1): 0 when they are the same, 1 when not. */
static int diff(struct cli *c, struct mck *k)
{
    struct merr err = {""};
    json_t *doc = NULL, *o;
    struct mck *other;
    char dir[4096];
    size_t i;
    bool same;
    int shown, r;

    TRY(local_find_checkpoint(c, c->arg[1], false, dir, sizeof(dir)));
    TRY(open_at(dir, &other));
    begin_bar(k, &shown);
    r = mck_diff(k, other, &doc, &err);
    end_bar(k, shown);
    mck_free(other);
    if (r < 0)
        return failed(r, &err);
    same = json_is_true(json_object_get(doc, "same"));
    if (c->json) {
        (void)cli_print_json_new(doc);
        return same ? CLI_DONE : CLI_FAILED;
    }
    json_array_foreach (json_object_get(doc, "differences"), i, o) {
        print_difference(o);
    }
    json_array_foreach (json_object_get(doc, "cursor"), i, o) {
        (void)printf("cursor: %s differs\n", json_string_value(o));
    }
    (void)printf("%lld of %lld tensors are equal\n", cli_int(doc, "equal"), cli_int(doc, "tensors"));
    json_decref(doc);
    return same ? CLI_DONE : CLI_FAILED;
}

static int export_to(struct cli *c, struct mck *k)
{
    const char *dtype = cli_option(c, "dtype");
    struct merr err = {""};
    uint64_t part_mib = (uint64_t)cli_number(c, "part-mib", 0);
    int shown, r;

    begin_bar(k, &shown);
    r = mck_export_safetensors(k, c->arg[1], dtype, part_mib << 20, &err);
    end_bar(k, shown);
    if (r < 0)
        return failed(r, &err);
    if (c->json) {
        json_t *doc = json_pack("{s:s,s:s,s:I}", "path", c->arg[1], "dtype", dtype, "step", (json_int_t)mck_step(k));

        r = cli_print_json(doc);
        json_decref(doc);
        return r;
    }
    (void)printf("wrote the weights to %s (%s)\n", c->arg[1], dtype);
    return CLI_DONE;
}

/* Repair what is damaged from others, or without any see whether something is. */
static int heal(struct cli *c, json_t **ret_report, struct merr *err)
{
    struct mck *k = NULL;
    int shown, r = mck_open_path(c->arg[0], &k, err);

    if (r)
        return r;
    begin_bar(k, &shown);
    r = c->given.n_list ? mck_heal(k, c->given.list, c->given.n_list, ret_report, err) : mck_verify(k, NULL, err);
    end_bar(k, shown);
    mck_free(k);
    return r;
}

static int repair(struct cli *c)
{
    const char *path = c->arg[0];
    int rebuilt, r;
    struct merr err = {""};
    json_t *report = NULL;
    size_t healed;

    rebuilt = mck_repair(path, &err);
    if (rebuilt < 0)
        return failed(rebuilt, &err);
    if (rebuilt && !c->json)
        (void)printf("rebuilt %s/MANIFEST\n", path);
    r = heal(c, &report, &err);
    if (r == -EBADMSG && !c->given.n_list)
        return cli_fail(CLI_FAILED,
                        "%s\nwith --from, copies of it or snapshots of its step in memory, damaged chunks "
                        "are written anew from there",
                        err.text);
    healed = json_array_size(json_object_get(report, "healed"));
    if (c->json && (report || !r)) {
        json_t *doc = json_pack("{s:s, s:b}", "path", path, "repaired", rebuilt || healed);

        if (report)
            (void)json_object_update(doc, report);
        (void)cli_print_json_new(doc);
    } else if (healed) {
        (void)printf("wrote %zu damaged chunk%s of %s anew\n", healed, healed == 1 ? "" : "s", path);
    } else if (!rebuilt && !r) {
        (void)printf("%s is whole: there is nothing to repair\n", path);
    }
    json_decref(report);
    return r < 0 ? failed(r, &err) : CLI_DONE;
}

/* The option's number, or 0 without it. */
static float bound_of(const struct cli *c, const char *name)
{
    const char *text = cli_option(c, name);

    return text ? strtof(text, NULL) : 0;
}

static int archive(struct cli *c, const char *dir)
{
    struct merr err = {""};
    const char *codec = cli_option(c, "codec");
    struct mck_bounds bounds = {.rho = bound_of(c, "rho"), .eb = bound_of(c, "eb")};
    int steps = 0, r;

    if (strcmp(codec, "optq") != 0 && (cli_option(c, "rho") || cli_option(c, "eb")))
        return cli_fail(CLI_USAGE, "--rho and --eb are for --codec optq, not for '%s'", codec);
    r = mck_archive(dir, codec, &bounds, &steps, &err);
    if (r < 0)
        return failed(r, &err);
    if (c->json)
        return cli_print_json_new(json_pack("{s:s, s:i}", "path", dir, "archived", steps));
    (void)printf("archived %d checkpoint%s\n", steps, steps == 1 ? "" : "s");
    return CLI_DONE;
}

static int delete (struct cli *c, const char *dir)
{
    const char *step = cli_option(c, "step");
    struct merr err = {""};
    int r;

    if (!step)
        return cli_fail(CLI_USAGE,
                        "say which checkpoint goes: --step N; `muster checkpoint list` shows those there are");
    r = mck_remove(dir, (uint64_t)cli_number(c, "step", 0), &err);
    if (r < 0)
        return failed(r, &err);
    if (c->json)
        return cli_print_json_new(
            json_pack("{s:s, s:o}", "path", dir, "removed", json_integer(cli_number(c, "step", 0))));
    (void)printf("removed the checkpoint of step %s\n", step);
    return CLI_DONE;
}

/* What training would refuse is refused before anything is copied. Tensors without a config.json are any program's. */
static int check_model(const struct mck *k, const char *from, struct merr *err)
{
    const json_t *config = json_object_get(mck_kv(k), "model");
    struct hf_model m;
    int r = config ? hf_model_read(config, &m, err) : 0;

    return r == 0 ? 0
                  : merr_prefix(err, r,
                                "no training could begin from %s (tensors without their config.json are imported as "
                                "they are)",
                                from);
}

static int import(struct cli *c)
{
    struct merr err = {""};
    struct mck *k = NULL;
    int shown, r = mck_open_safetensors(c->arg[0], &k, &err);

    if (r < 0)
        return failed(r, &err);
    r = check_model(k, c->arg[0], &err);
    if (r < 0) {
        mck_free(k);
        return failed(r, &err);
    }
    begin_bar(k, &shown);
    r = mck_import_safetensors(k, c->arg[1], &err);
    end_bar(k, shown);
    mck_free(k);
    if (r < 0)
        return failed(r, &err);
    if (c->json)
        return cli_print_json_new(json_pack("{s:s, s:i}", "path", c->arg[1], "step", 0));
    (void)printf("wrote step 0 in %s\n", c->arg[1]);
    return CLI_DONE;
}

int files_checkpoint(struct cli *c)
{
    const char *what = strchr(c->cmd->name, ' ') + 1;
    bool archives = strcmp(what, "archive") == 0, deletes = strcmp(what, "delete") == 0;
    bool lists = archives || deletes || strcmp(what, "list") == 0;
    struct mck *k = NULL;
    char dir[4096];
    int r;

    if (strcmp(what, "import") == 0)
        return import(c);
    if (strcmp(what, "repair") == 0)
        return repair(c);
    r = local_find_checkpoint(c, c->arg[0], lists, dir, sizeof(dir));
    if (r)
        return r;
    if (archives)
        return archive(c, dir);
    if (deletes)
        return delete (c, dir);
    if (lists)
        return list(c, dir);
    r = open_at(dir, &k);
    if (r)
        return r;
    r = strcmp(what, "inspect") == 0  ? inspect(c, k)
        : strcmp(what, "verify") == 0 ? verify(c, k)
        : strcmp(what, "digest") == 0 ? digest(c, k)
        : strcmp(what, "diff") == 0   ? diff(c, k)
                                      : export_to(c, k);
    mck_free(k);
    return r;
}
