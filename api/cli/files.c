/* checkpoint ...: what can be done with checkpoints in a folder, without a server. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "api/cli/cli.h"
#include "checkpoint/checkpoint.h"

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

static int list(struct cli *c)
{
    struct merr err = {""};
    json_t *all = NULL, *one;
    size_t i;
    int r = mck_list(c->arg[0], &all, &err);

    if (r < 0)
        return failed(r, &err);
    if (c->json) {
        json_t *doc = json_pack("{s:O}", "checkpoints", all);

        r = cli_print_json(doc);
        json_decref(doc);
    } else {
        json_array_foreach(all, i, one) {
            (void)printf("step %-9lld %12lld bytes  %s\n", (long long)json_integer_value(json_object_get(one, "step")),
                         (long long)json_integer_value(json_object_get(one, "bytes")),
                         json_string_value(json_object_get(one, "path")));
        }
        r = CLI_DONE;
    }
    json_decref(all);
    return r;
}

static int inspect(struct cli *c, struct mck *k)
{
    json_t *doc = mck_inspect(k), *t;
    size_t i;
    int r = CLI_DONE;

    if (!doc)
        return cli_fail(CLI_FAILED, "no memory to inspect the checkpoint");
    if (c->json || !json_is_array(json_object_get(doc, "tensors"))) {
        r = cli_print_json(doc);
    } else {
        (void)printf("step %llu, %zu files, %zu tensors\n", (unsigned long long)mck_step(k),
                     json_array_size(json_object_get(doc, "files")), json_array_size(json_object_get(doc, "tensors")));
        json_array_foreach(json_object_get(doc, "tensors"), i, t) {
            char *shape = json_dumps(json_object_get(t, "shape"), JSON_COMPACT);

            (void)printf("  %-9s %-5s %-20s %s\n", json_string_value(json_object_get(t, "role")),
                         json_string_value(json_object_get(t, "dtype")), shape ? shape : "",
                         json_string_value(json_object_get(t, "name")));
            free(shape);
        }
    }
    json_decref(doc);
    return r;
}

static int verify(struct cli *c, struct mck *k)
{
    struct merr err = {""};
    json_t *report = NULL;
    int r = mck_verify(k, NULL, NULL, &report, &err);

    if (c->json && report)
        (void)cli_print_json(report);
    else if (r == 0)
        (void)printf("step %llu is whole\n", (unsigned long long)mck_step(k));
    json_decref(report);
    return r < 0 ? failed(r, &err) : CLI_DONE;
}

static int digest(struct cli *c, struct mck *k)
{
    struct merr err = {""};
    char hex[33];
    int r = mck_digest(k, hex, &err);

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

static int export_to(struct cli *c, struct mck *k)
{
    const char *dtype = cli_option(c, "dtype") ? cli_option(c, "dtype") : "f32";
    struct merr err = {""};
    int r;

    if (strcmp(dtype, "f32") != 0 && strcmp(dtype, "bf16") != 0 && strcmp(dtype, "f16") != 0)
        return cli_fail(CLI_USAGE, "--dtype '%s': want f32, bf16 or f16", dtype);
    r = mck_export_safetensors(k, c->arg[1], dtype, &err);
    if (r < 0)
        return failed(r, &err);
    if (c->json) {
        json_t *doc = json_pack("{s:s,s:s,s:I}", "path", c->arg[1], "dtype", dtype, "step", (json_int_t)mck_step(k));

        r = cli_print_json(doc);
        json_decref(doc);
        return r;
    }
    (void)printf("wrote %s/model.safetensors (%s)\n", c->arg[1], dtype);
    return CLI_DONE;
}

int files_checkpoint(struct cli *c)
{
    const char *what = strchr(c->cmd->name, ' ') + 1;
    struct mck *k = NULL;
    struct merr err = {""};
    int r;

    if (strcmp(what, "list") == 0)
        return list(c);
    if (strcmp(what, "import") == 0)
        return cli_fail(CLI_REFUSED, "`muster checkpoint import` is not built yet in this version; "
                        "train.init.from reads safetensors directly");
    if (strcmp(what, "repair") == 0) {
        r = mck_repair(c->arg[0], &err);
        if (r == 0)
            (void)printf("%s%s%s\n", c->json ? "{\"repaired\": true}" : "rebuilt ", c->json ? "" : c->arg[0],
                         c->json ? "" : "/MANIFEST");
        return r < 0 ? failed(r, &err) : CLI_DONE;
    }
    r = open_at(c->arg[0], &k);
    if (r)
        return r;
    r = strcmp(what, "inspect") == 0  ? inspect(c, k)
        : strcmp(what, "verify") == 0 ? verify(c, k)
        : strcmp(what, "digest") == 0 ? digest(c, k)
                                      : export_to(c, k);
    mck_free(k);
    return r;
}
