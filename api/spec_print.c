/* Printing a spec, its JSON schema and its reference, all from the table of fields. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/spec_read.h"
#include "base/buf.h"
#include "base/try.h"

#define LABEL_PATTERN "^[a-z0-9./-]{1,63}$"

/* The object at the first len bytes of path in root, made with its parents. Borrowed; NULL without memory. */
static json_t *object_at(json_t *root, const char *path, size_t len, const char *inner)
{
    char name[32];

    for (size_t at = 0; root && at < len;) {
        size_t n = strcspn(path + at + 1, "/");
        json_t *child;

        assert(n < sizeof(name));
        memcpy(name, path + at + 1, n);
        name[n] = '\0';
        if (inner)
            root = json_object_get(root, inner);
        child = json_object_get(root, name);
        if (!child) {
            child = inner ? json_pack("{s:s,s:{},s:b}", "type", "object", "properties", "additionalProperties", 0)
                          : json_object();
            if (json_object_set_new(root, name, child) < 0)
                return NULL;
        }
        root = child;
        at += n + 1;
    }
    return root;
}

static const char *last_name(const char *path)
{
    return strrchr(path, '/') + 1;
}

static json_t *list_json(char *const *list)
{
    json_t *all = json_array();

    for (; list && *list; list++)
        (void)json_array_append_new(all, json_string(*list));
    return all;
}

static json_t *env_json(char *const *env)
{
    json_t *all = json_object();

    for (; env && *env; env++) {
        const char *eq = *env + strcspn(*env, "=@");
        char *name = strndup(*env, (size_t)(eq - *env));

        if (!name || json_object_set_new(all, name,
                                         *eq == '@' ? json_pack("{s:s}", "secret", eq + 1) : json_string(eq + 1)) < 0) {
            free(name);
            json_decref(all);
            return NULL;
        }
        free(name);
    }
    return all;
}

static json_t *names_json(const struct spec_names *names)
{
    json_t *all = json_array();

    for (size_t i = 0; i < names->n; i++)
        (void)json_array_append_new(all, json_string(names->v[i]));
    return all;
}

static json_t *counts_json(const struct spec_counts *c)
{
    json_t *all = json_array();

    for (int i = 0; i < c->n; i++)
        (void)json_array_append_new(all, json_integer(c->v[i]));
    return all;
}

/* The value of a field, new. NULL without memory. *ret_none: it has no value to print. */
static json_t *value_json(const struct field *d, const struct job_spec *s, bool *ret_none)
{
    const char *at = (const char *)s + d->at;
    uint64_t u;

    *ret_none = false;
    switch (d->type) {
    case FIELD_INT:
        return json_integer(*(const int *)at);
    case FIELD_AUTO:
        return *(const int *)at == d->auto_value ? json_string("auto") : json_integer(*(const int *)at);
    case FIELD_U64:
        memcpy(&u, at, sizeof(u));
        return json_integer((json_int_t)u);
    case FIELD_NUMBER:
        return json_real(*(const double *)(const void *)at);
    case FIELD_PAIR:
        return json_pack("[f,f]", ((const double *)(const void *)at)[0], ((const double *)(const void *)at)[1]);
    case FIELD_SWITCH:
        return *(const int *)at == SPEC_AUTO_SWITCH ? json_string("auto") : json_boolean(*(const int *)at);
    case FIELD_BOOL:
        return json_boolean(*(const bool *)at);
    case FIELD_ENUM:
        return json_string(d->words[*(const int *)at]);
    case FIELD_FIXED:
        return json_string(d->words[0]);
    case FIELD_NAME:
    case FIELD_WORD:
        *ret_none = !*at;
        return *at ? json_string(at) : NULL;
    case FIELD_TEXT:
        *ret_none = !*(char *const *)at;
        return *ret_none ? NULL : json_string(*(char *const *)at);
    case FIELD_NAMES:
        return names_json((const void *)at);
    case FIELD_COUNTS:
        return counts_json((const void *)at);
    case FIELD_ARGV:
        return list_json(*(char *const *const *)at);
    case FIELD_ENV:
    case FIELD_LABELS:
        return env_json(*(char *const *const *)at);
    case FIELD_AFTER:
    case FIELD_VALUES:
        *ret_none = !*(json_t *const *)at;
        return json_incref(*(json_t *const *)at);
    }
    abort();
}

json_t *spec_to_json(const struct job_spec *spec)
{
    json_t *root = json_object();

    for (size_t i = 0; root && i < spec_fields_n; i++) {
        const struct field *d = &spec_fields[i];
        const char *name = last_name(d->path);
        bool none;
        json_t *v, *o;

        if (d->scope == SCOPE_ARRAY
                ? spec->array.tasks == 0
                : d->scope != SCOPE_ALL && d->scope != (spec->kind == JOB_TRAIN ? SCOPE_TRAIN : SCOPE_COMMAND))
            continue;
        v = value_json(d, spec, &none);
        if (none)
            continue;
        o = object_at(root, d->path, (size_t)(name - 1 - d->path), NULL);
        if (json_object_set_new(o, name, v) < 0) {
            json_decref(root);
            return NULL;
        }
    }
    return root;
}

/* --- schema -------------------------------------------------------------------------------------------- */

static json_t *words_json(const struct field *d)
{
    json_t *all = json_array();

    for (size_t i = 0; d->words[i]; i++)
        (void)json_array_append_new(all, json_string(d->words[i]));
    return all;
}

static json_t *range_json(const struct field *d, bool whole)
{
    json_t *o = json_pack("{s:s}", "type", whole ? "integer" : "number");

    (void)json_object_set_new(o, d->above_lo ? "exclusiveMinimum" : "minimum",
                              whole ? json_integer((json_int_t)d->lo) : json_real(d->lo));
    (void)json_object_set_new(o, d->below_hi ? "exclusiveMaximum" : "maximum",
                              whole ? json_integer((json_int_t)d->hi) : json_real(d->hi));
    return o;
}

static json_t *name_schema(void)
{
    return json_pack("{s:s,s:s}", "type", "string", "pattern", "^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$");
}

static json_t *plain_schema(const struct field *d)
{
    switch (d->type) {
    case FIELD_INT:
    case FIELD_U64:
        return range_json(d, true);
    case FIELD_AUTO:
        return json_pack("{s:[o,{s:s}]}", "anyOf", range_json(d, true), "const", "auto");
    case FIELD_NUMBER:
        return range_json(d, false);
    case FIELD_PAIR:
        return json_pack("{s:s,s:o,s:i,s:i}", "type", "array", "items", range_json(d, false), "minItems", 2, "maxItems",
                         2);
    case FIELD_SWITCH:
        return json_pack("{s:[{s:s},{s:s}]}", "anyOf", "type", "boolean", "const", "auto");
    case FIELD_BOOL:
        return json_pack("{s:s}", "type", "boolean");
    case FIELD_NAME:
        return name_schema();
    case FIELD_ENUM:
    case FIELD_WORD:
    case FIELD_FIXED:
        return json_pack("{s:o}", "enum", words_json(d));
    case FIELD_TEXT:
        return json_pack("{s:s,s:i,s:i}", "type", "string", "minLength", 1, "maxLength", (int)spec_text_max(d));
    case FIELD_NAMES:
        return json_pack("{s:s,s:o,s:i}", "type", "array", "items", name_schema(), "maxItems", SPEC_CLASSES_MAX);
    case FIELD_COUNTS:
        return json_pack("{s:s,s:o,s:i}", "type", "array", "items", range_json(d, true), "maxItems", SPEC_STAGES_MAX);
    case FIELD_ARGV:
        return json_pack("{s:s,s:{s:s,s:i},s:i,s:i}", "type", "array", "items", "type", "string", "maxLength",
                         SPEC_ARG_BYTES, "minItems", 1, "maxItems", SPEC_ARGS_MAX);
    case FIELD_ENV:
        return json_pack("{s:s, s:{s:[{s:s, s:i}, {s:s, s:[s], s:{s:{s:s, s:s}}, s:b}]}, s:i}", "type", "object",
                         "additionalProperties", "anyOf", "type", "string", "maxLength", SPEC_ARG_BYTES, "type",
                         "object", "required", "secret", "properties", "secret", "type", "string", "pattern",
                         "^[A-Za-z0-9_-][A-Za-z0-9._-]{0,62}$", "additionalProperties", 0, "maxProperties",
                         SPEC_ARGS_MAX);
    case FIELD_LABELS:
        return json_pack("{s:s, s:{s:s}, s:{s:s, s:s}, s:i}", "type", "object", "propertyNames", "pattern",
                         LABEL_PATTERN, "additionalProperties", "type", "string", "pattern", LABEL_PATTERN,
                         "maxProperties", SPEC_LABELS_MAX);
    case FIELD_AFTER:
        return json_pack("{s:s, s:i, s:{s:s, s:[s], s:{s:{s:s, s:s}, s:{s:[s,s,s,s]}}, s:b}}", "type", "array",
                         "maxItems", SPEC_AFTER_MAX, "items", "type", "object", "required", "job", "properties", "job",
                         "type", "string", "pattern", "^j[1-9][0-9]{0,14}$", "when", "enum", "ok", "ended", "failed",
                         "started", "additionalProperties", 0);
    case FIELD_VALUES:
        return json_pack("{s:s}", "type", "object");
    }
    abort();
}

/* What is filled in for each task of an array may also be a text with the place for it. */
static json_t *field_schema(const struct field *d)
{
    json_t *plain = plain_schema(d);

    if (!spec_is_filled(d->path) || d->type == FIELD_TEXT || d->type == FIELD_ARGV || d->type == FIELD_ENV)
        return plain;
    return json_pack("{s:[o, {s:s, s:s}]}", "anyOf", plain, "type", "string", "pattern", "[{][{].*[}][}]");
}

/* Let the object at name in properties also be written short. */
static int allow_short(json_t *properties, const char *name, json_t *short_form)
{
    json_t *full = json_object_get(properties, name); /* borrowed; kept by the pack */

    return json_object_set_new(properties, name, json_pack("{s:[o,O]}", "anyOf", short_form, full));
}

static int add_field(json_t *root, const struct field *d)
{
    const char *name = last_name(d->path);
    json_auto_t *one = field_schema(d);
    json_t *o = object_at(root, d->path, (size_t)(name - 1 - d->path), "properties");

    TRY(json_object_set_new(one, "description", json_string(d->help)));
    if (d->def)
        TRY(json_object_set_new(one, "default", json_loads(d->def, JSON_DECODE_ANY, NULL)));
    if (d->computed)
        TRY(json_object_set_new(one, "x-default", json_string(d->computed)));
    if (!d->def && !d->computed)
        TRY(json_object_set_new(o, "required", json_pack("[s]", name)));
    return json_object_set(json_object_get(o, "properties"), name, one);
}

/* What may be written as one word instead of an object. */
static int add_short_forms(json_t *top)
{
    json_t *train = json_object_get(top, "train");
    const struct field *preset = spec_fields;

    while (strcmp(preset->path, "/train/model/preset") != 0)
        preset++;
    TRY(allow_short(json_object_get(train, "properties"), "model", json_pack("{s:o}", "enum", words_json(preset))));
    TRY(json_object_set_new(train, "required", json_pack("[s,s]", "model", "data")));
    TRY(allow_short(top, "command",
                    json_pack("{s:s,s:i,s:i}", "type", "string", "minLength", 1, "maxLength", SPEC_ARG_BYTES)));
    return allow_short(top, "parallel", json_pack("{s:s}", "const", "auto"));
}

json_t *spec_schema(void)
{
    json_auto_t *root =
        json_pack("{s:s,s:s,s:s,s:{},s:b,s:[{s:[s]},{s:[s]}]}", "$schema",
                  "https://json-schema.org/draft/2020-12/schema", "title", "a job of Muster", "type", "object",
                  "properties", "additionalProperties", 0, "oneOf", "required", "train", "required", "command");

    for (size_t i = 0; i < spec_fields_n; i++)
        if (add_field(root, &spec_fields[i]) < 0)
            return NULL;
    return add_short_forms(json_object_get(root, "properties")) < 0 ? NULL : json_incref(root);
}

/* --- reference ----------------------------------------------------------------------------------------- */

static void print_values(struct buf *out, const struct field *d)
{
    switch (d->type) {
    case FIELD_INT:
    case FIELD_U64:
    case FIELD_AUTO:
        (void)buf_printf(out, "%.0f to %.0f%s", d->lo, d->hi, d->type == FIELD_AUTO ? ", or `\"auto\"`" : "");
        return;
    case FIELD_NUMBER:
    case FIELD_PAIR:
        (void)buf_printf(out, "%s%s%g to %s%g", d->type == FIELD_PAIR ? "two numbers, each " : "number, ",
                         d->above_lo ? "above " : "", d->lo, d->below_hi ? "below " : "", d->hi);
        return;
    case FIELD_ENUM:
    case FIELD_WORD:
    case FIELD_FIXED:
        for (size_t i = 0; d->words[i]; i++)
            (void)buf_printf(out, "%s`%s`", i ? ", " : "", d->words[i]);
        return;
    case FIELD_SWITCH:
        (void)buf_addstr(out, "`true`, `false` or `\"auto\"`");
        return;
    case FIELD_BOOL:
        (void)buf_addstr(out, "`true` or `false`");
        return;
    case FIELD_NAME:
        (void)buf_printf(out, "a name of 1 to %d bytes", SPEC_NAME_MAX - 1);
        return;
    case FIELD_TEXT:
        (void)buf_printf(out, "text of 1 to %zu bytes", spec_text_max(d));
        return;
    case FIELD_NAMES:
        (void)buf_printf(out, "array of at most %d names", SPEC_CLASSES_MAX);
        return;
    case FIELD_COUNTS:
        (void)buf_printf(out, "array of at most %d whole numbers, each %.0f to %.0f", SPEC_STAGES_MAX, d->lo, d->hi);
        return;
    case FIELD_ARGV:
    case FIELD_ENV:
        (void)buf_printf(out, "%s %d texts, each of at most %d bytes%s and all of %d KiB",
                         d->type == FIELD_ARGV ? "array of 1 to" : "object of at most", SPEC_ARGS_MAX, SPEC_ARG_BYTES,
                         d->type == FIELD_ENV ? " with its name" : "", SPEC_ARGS_BYTES >> 10);
        if (d->type == FIELD_ENV)
            (void)buf_printf(out, ", or `{\"secret\": NAME}` for one of your secrets (`muster secret set`)");
        break;
    case FIELD_LABELS:
        (void)buf_printf(out, "object of at most %d texts; a text and its name: 1 to %d of `a-z0-9./-`",
                         SPEC_LABELS_MAX, SPEC_LABEL_BYTES);
        return;
    case FIELD_AFTER:
        (void)buf_printf(out, "an array of at most %d jobs", SPEC_AFTER_MAX);
        break;
    case FIELD_VALUES:
        (void)buf_addstr(out, "an object by name");
    }
}

static void print_object(struct buf *out, const char *path)
{
    size_t len = strlen(path);

    (void)buf_printf(out, "| field | what | values | default |\n|---|---|---|---|\n");
    for (size_t i = 0; i < spec_fields_n; i++) {
        const struct field *d = &spec_fields[i];

        if (strncmp(d->path, path, len) != 0 || last_name(d->path) != d->path + len + 1)
            continue;
        (void)buf_printf(out, "| `%s` | %s | ", last_name(d->path), d->help);
        print_values(out, d);
        if (d->def)
            (void)buf_printf(out, " | `%s` |\n", d->def);
        else
            (void)buf_printf(out, " | %s |\n", d->computed ? d->computed : "needed");
    }
    (void)buf_addstr(out, "\n");
}

static void print_presets(struct buf *out)
{
    (void)buf_addstr(out, "## Presets of models\n\n| preset | family | layers | hidden | heads | kv_heads | "
                          "ffn | context | vocab | and |\n|---|---|---|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < spec_presets_n; i++) {
        const struct preset *p = &spec_presets[i];

        (void)buf_printf(out, "| `%s` | %s | %d | %d | %d | %d | %d | %d | %d |", p->name,
                         p->family == MODEL_GPT2 ? "gpt2" : "llama", p->layers, p->hidden, p->heads, p->kv_heads,
                         p->ffn, p->context, p->vocab);
        if (p->head_dim > 0)
            (void)buf_printf(out, " head_dim %d", p->head_dim);
        if (p->window > 0)
            (void)buf_printf(out, " window %d", p->window);
        (void)buf_printf(out, "%s%s%s |\n", p->qkv_bias ? " qkv_bias" : "", p->qk_norm ? " qk_norm" : "",
                         p->fused ? " fused" : "");
    }
}

int spec_reference(struct buf *out)
{
    (void)buf_addstr(
        out,
        "# The job spec\n\n"
        "A job is a JSON or YAML document (YAML when its first character is not `{`). Only what a job does is needed: "
        "`train` with\na model and a corpus, or `command`. Everything else has a default. Printed by "
        "`make docs/spec.md` from the table in\n`api/spec_fields.c`, from which specs are also read and checked.\n\n"
        "```yaml\ntrain:\n  model: gpt2-124m          # a preset; or {preset: gpt2-124m, dropout: 0.1}; or sizes\n"
        "  data: {path: corpus.txt}\n```\n\n"
        "A spec is checked as a whole and every fault is reported under its JSON pointer. Features that this "
        "version does\nnot have yet are refused with a message that says so.\n\n"
        "`command: python train.py` is short for `command: {argv: [/bin/sh, -c, python train.py]}`. One process is "
        "started on each\ndevice; its environment, and what becomes of the job when it ends, are described in "
        "[protocol.md](protocol.md).\n\nA command that is told to end (SIGTERM) when its job is suspended, preempted, "
        "moved or drained should save and exit with\nstatus 0: it is started again later. If it has done all of its "
        "work by then, it says so by making the file\n`$MUSTER_RUN_DIR/finished` "
        "before it ends.\n\n## Top level\n\n");
    print_object(out, "");
    for (size_t i = 0; i < spec_fields_n; i++) {
        const char *path = spec_fields[i].path;
        size_t len = (size_t)(last_name(path) - 1 - path);
        char object[64];
        bool seen = len == 0;

        for (size_t j = 0; j < i && !seen; j++)
            seen = (size_t)(last_name(spec_fields[j].path) - 1 - spec_fields[j].path) == len &&
                   strncmp(spec_fields[j].path, path, len) == 0;
        if (seen)
            continue;
        assert(len < sizeof(object));
        memcpy(object, path, len);
        object[len] = '\0';
        (void)buf_printf(out, "## %s\n\n%s.\n\n", object + 1, spec_object_help(object));
        print_object(out, object);
    }
    print_presets(out);
    return buf_failed(out) ? -ENOMEM : 0;
}
