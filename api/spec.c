/* Reading a spec: each field by its row of the table, then the defaults that depend on others, then what must fit
 * together. Every fault is kept, so that the owner of a spec corrects it once. */
#include "api/spec.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/spec_after.h"
#include "api/spec_read.h"
#include "base/try.h"
#include "base/word.h"

static const char *const type_names[] = {"an object", "an array",      "a string",      "a whole number",
                                         "a number",  "true or false", "true or false", "null"};

/* "got 7", "got 'x'", "got an array": at most a line. */
static const char *got(const json_t *v, char out[96])
{
    switch (json_typeof(v)) {
    case JSON_STRING:
        (void)snprintf(out, 96, "'%.60s'", json_string_value(v));
        break;
    case JSON_INTEGER:
        (void)snprintf(out, 96, "%lld", (long long)json_integer_value(v));
        break;
    case JSON_REAL:
        (void)snprintf(out, 96, "%g", json_real_value(v));
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        (void)snprintf(out, 96, "%s", json_is_true(v) ? "true" : "false");
        break;
    default:
        (void)snprintf(out, 96, "%s", type_names[json_typeof(v)]);
    }
    return out;
}

/* May this be the name of a job, project or device class? */
static bool name_is_good(const char *s, size_t len)
{
    if (len < 1 || len >= SPEC_NAME_MAX || !isalnum((unsigned char)s[0]))
        return false;
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)s[i]) && !strchr("._-", s[i]))
            return false;
    return true;
}

static int read_whole(const struct field *d, const json_t *v, int64_t *ret, struct faults *f)
{
    char what[96];

    if (d->type == FIELD_AUTO && json_is_string(v) && strcmp(json_string_value(v), "auto") == 0) {
        *ret = d->auto_value;
        return 0;
    }
    if (!json_is_integer(v) || json_integer_value(v) < (json_int_t)d->lo || json_integer_value(v) > (json_int_t)d->hi) {
        faults_add(f, d->path, "want a whole number from %.0f to %.0f%s, got %s", d->lo, d->hi,
                   d->type == FIELD_AUTO ? " or \"auto\"" : "", got(v, what));
        return -EINVAL;
    }
    *ret = json_integer_value(v);
    return 0;
}

static int read_number(const struct field *d, const json_t *v, double *ret, struct faults *f)
{
    double x = json_number_value(v);
    char what[96];

    if (!json_is_number(v) || !(x >= d->lo && x <= d->hi) || (d->below_hi && x >= d->hi) ||
        (d->above_lo && x <= d->lo)) {
        faults_add(f, d->path, "want a number from %g%s to %g%s, got %s", d->lo, d->above_lo ? " (not itself)" : "",
                   d->hi, d->below_hi ? " (not itself)" : "", got(v, what));
        return -EINVAL;
    }
    *ret = x;
    return 0;
}

/* The index of v in the field's words. */
static int read_word(const struct field *d, const json_t *v, int *ret, struct faults *f)
{
    char all[256] = "", what[96];
    const char *near = NULL;
    size_t n = 0, len = 0;

    for (; d->words[n]; n++) {
        if (json_is_string(v) && strcmp(json_string_value(v), d->words[n]) == 0) {
            *ret = (int)n;
            return 0;
        }
        len += (size_t)snprintf(all + len, sizeof(all) - len, "%s%s", n ? ", " : "", d->words[n]);
        assert(len < sizeof(all));
    }
    if (json_is_string(v))
        near = word_nearest(json_string_value(v), d->words, n);
    if (near)
        faults_add(f, d->path, "want one of %s; got %s: did you mean '%s'?", all, got(v, what), near);
    else
        faults_add(f, d->path, "want one of %s; got %s", all, got(v, what));
    return -EINVAL;
}

size_t spec_text_max(const struct field *d)
{
    return d->hi > 0 ? (size_t)d->hi : SPEC_TEXT_FIELD_MAX;
}

static int read_text(const struct field *d, const json_t *v, char **ret, struct faults *f)
{
    size_t len = json_string_length(v);
    const char *s = json_string_value(v);
    char what[96], *copy;

    if (!s || len < 1 || len > spec_text_max(d) || strlen(s) != len) {
        faults_add(f, d->path, "want a text of 1 to %zu bytes, got %s", spec_text_max(d),
                   s && len ? "a longer one or one with NUL bytes" : got(v, what));
        return -EINVAL;
    }
    copy = strdup(s);
    if (!copy)
        return -ENOMEM;
    free(*ret);
    *ret = copy;
    return 0;
}

static int read_name(const struct field *d, const json_t *v, char ret[SPEC_NAME_MAX], struct faults *f)
{
    char what[96];

    if (!json_is_string(v) || !name_is_good(json_string_value(v), json_string_length(v))) {
        faults_add(f, d->path, "want 1 to %d letters, digits, '.', '_' or '-', the first a letter or digit; got %s",
                   SPEC_NAME_MAX - 1, got(v, what));
        return -EINVAL;
    }
    memcpy(ret, json_string_value(v), json_string_length(v) + 1);
    return 0;
}

static int read_names(const struct field *d, const json_t *v, struct spec_names *ret, struct faults *f)
{
    size_t before = f->n + f->more;

    if (!json_is_array(v) || json_array_size(v) > SPEC_CLASSES_MAX) {
        faults_add(f, d->path, "want an array of at most %d names", SPEC_CLASSES_MAX);
        return -EINVAL;
    }
    ret->n = json_array_size(v);
    for (size_t i = 0; i < ret->n; i++) {
        char pointer[64];
        struct field one = {.path = pointer};

        (void)snprintf(pointer, sizeof(pointer), "%s/%zu", d->path, i);
        (void)read_name(&one, json_array_get(v, i), ret->v[i], f);
    }
    return f->n + f->more > before ? -EINVAL : 0;
}

static int read_counts(const struct field *d, const json_t *v, struct spec_counts *ret, struct faults *f)
{
    if (!json_is_array(v) || json_array_size(v) > SPEC_STAGES_MAX) {
        faults_add(f, d->path, "want an array of at most %d whole numbers", SPEC_STAGES_MAX);
        return -EINVAL;
    }
    for (size_t i = 0; i < json_array_size(v); i++) {
        char pointer[64];
        struct field one = {.path = pointer, .type = FIELD_INT, .lo = d->lo, .hi = d->hi};
        int64_t n;

        (void)snprintf(pointer, sizeof(pointer), "%s/%zu", d->path, i);
        if (read_whole(&one, json_array_get(v, i), &n, f) != 0)
            return -EINVAL;
        ret->v[i] = (uint16_t)n;
    }
    ret->n = (int)json_array_size(v);
    return 0;
}

static int read_pair(const struct field *d, const json_t *v, double *ret, struct faults *f)
{
    double two[2];

    if (!json_is_array(v) || json_array_size(v) != 2) {
        faults_add(f, d->path, "want an array of two numbers");
        return -EINVAL;
    }
    for (size_t i = 0; i < 2; i++)
        if (read_number(d, json_array_get(v, i), &two[i], f) < 0)
            return -EINVAL;
    memcpy(ret, two, sizeof(two));
    return 0;
}

/* One text of argv or env at its pointer, which is len bytes there; *left is what all may still take. */
static int check_arg(const char *pointer, const json_t *v, size_t len, size_t *left, struct faults *f)
{
    char what[96];

    if (!json_is_string(v) || strlen(json_string_value(v)) != json_string_length(v)) {
        faults_add(f, pointer, "want a text without NUL bytes, got %s", got(v, what));
        return -EINVAL;
    }
    if (len > SPEC_ARG_BYTES) {
        faults_add(f, pointer,
                   "%zu bytes are more than the %d that a program can be given at once; put them into a "
                   "file",
                   len, SPEC_ARG_BYTES);
        return -EINVAL;
    }
    if (len + 1 > *left) {
        faults_add(f, pointer, "up to here there are more than %d bytes together; put some into a file",
                   SPEC_ARGS_BYTES);
        return -EINVAL;
    }
    *left -= len + 1;
    return 0;
}

static int read_argv(const struct field *d, const json_t *v, char ***ret, struct faults *f)
{
    size_t n = json_array_size(v), left = SPEC_ARGS_BYTES;
    char **argv;

    if (!json_is_array(v) || n < 1 || n > SPEC_ARGS_MAX || json_string_length(json_array_get(v, 0)) == 0) {
        faults_add(f, d->path, "want an array of 1 to %d texts, the first a program", SPEC_ARGS_MAX);
        return -EINVAL;
    }
    argv = calloc(n + 1, sizeof(*argv));
    if (!argv)
        return -ENOMEM;
    *ret = argv;
    for (size_t i = 0; i < n; i++) {
        const json_t *a = json_array_get(v, i);
        char pointer[64];

        (void)snprintf(pointer, sizeof(pointer), "%s/%zu", d->path, i);
        if (check_arg(pointer, a, json_string_length(a), &left, f) < 0)
            return -EINVAL;
        argv[i] = strdup(json_string_value(a));
        if (!argv[i])
            return -ENOMEM;
    }
    return 0;
}

static bool env_name_is_good(const char *name)
{
    if (!isalpha((unsigned char)name[0]) && name[0] != '_')
        return false;
    for (const char *c = name; *c; c++)
        if (!isalnum((unsigned char)*c) && *c != '_')
            return false;
    return true;
}

bool spec_secret_name_ok(const char *name)
{
    size_t n = strlen(name);

    return n > 0 && n <= SPEC_SECRET_MAX && *name != '.' &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == n;
}

/* The name of a secret: {"secret": NAME}. NULL: it is none. */
static const char *secret_name(const json_t *v)
{
    const char *name = json_object_size(v) == 1 ? json_string_value(json_object_get(v, "secret")) : NULL;

    return name && spec_secret_name_ok(name) ? name : NULL;
}

static int read_env(const struct field *d, const json_t *v, char ***ret, struct faults *f)
{
    size_t n = json_object_size(v), i = 0, left = SPEC_ARGS_BYTES;
    const char *name;
    json_t *value;

    if (!json_is_object(v) || n > SPEC_ARGS_MAX) {
        faults_add(f, d->path, "want an object of at most %d variables", SPEC_ARGS_MAX);
        return -EINVAL;
    }
    *ret = calloc(n + 1, sizeof(**ret));
    if (!*ret)
        return -ENOMEM;
    json_object_foreach ((json_t *)v, name, value) {
        size_t len = strlen(name);
        char pointer[SPEC_VARIABLE_MAX + 64];

        if (!env_name_is_good(name) || len > SPEC_VARIABLE_MAX) {
            faults_add(f, d->path,
                       "'%.64s' is no name of a variable: want 1 to %d letters, digits and '_', the first "
                       "no digit",
                       name, SPEC_VARIABLE_MAX);
            return -EINVAL;
        }
        (void)snprintf(pointer, sizeof(pointer), "%s/%s", d->path, name);
        if (json_is_object(value) && !secret_name(value)) {
            faults_add(f, pointer,
                       "want a text, or {\"secret\": NAME} with a name of 1 to %d letters, digits, '.', '_', '-'",
                       SPEC_SECRET_MAX);
            return -EINVAL;
        }
        if (!json_is_object(value) && check_arg(pointer, value, len + 1 + json_string_length(value), &left, f) < 0)
            return -EINVAL;
        if (asprintf(&(*ret)[i], "%s%c%s", name, json_is_object(value) ? '@' : '=',
                     json_is_object(value) ? secret_name(value) : json_string_value(value)) < 0) {
            (*ret)[i] = NULL;
            return -ENOMEM;
        }
        i++;
    }
    return 0;
}

static bool label_is_good(const char *text)
{
    size_t len = strlen(text);

    return len >= 1 && len <= SPEC_LABEL_BYTES && strspn(text, SPEC_LABEL_LETTERS) == len;
}

static int read_labels(const struct field *d, const json_t *v, char ***ret, struct faults *f)
{
    size_t n = json_object_size(v), i = 0;
    const char *name;
    json_t *value;

    if (!json_is_object(v) || n > SPEC_LABELS_MAX) {
        faults_add(f, d->path, "want an object of at most %d labels", SPEC_LABELS_MAX);
        return -EINVAL;
    }
    *ret = calloc(n + 1, sizeof(**ret));
    if (!*ret)
        return -ENOMEM;
    json_object_foreach ((json_t *)v, name, value) {
        if (!label_is_good(name) || !json_is_string(value) || !label_is_good(json_string_value(value))) {
            faults_add(f, d->path,
                       "label '%.64s': want a name and a text of 1 to %d lower-case letters, digits, '.', '/' and '-'",
                       name, SPEC_LABEL_BYTES);
            return -EINVAL;
        }
        if (asprintf(&(*ret)[i], "%s=%s", name, json_string_value(value)) < 0) {
            (*ret)[i] = NULL;
            return -ENOMEM;
        }
        i++;
    }
    return 0;
}

/* Read v into the field's place. Returns 0, -EINVAL with a fault, -ENOMEM. */
static int read_field(const struct field *d, const json_t *v, struct job_spec *s, struct faults *f)
{
    char *at = (char *)s + d->at, what[96];
    int64_t whole = 0;
    int index = 0, r;

    switch (d->type) {
    case FIELD_INT:
    case FIELD_AUTO:
    case FIELD_U64:
        r = read_whole(d, v, &whole, f);
        if (r == 0 && d->type == FIELD_U64)
            memcpy(at, &whole, sizeof(uint64_t));
        else if (r == 0)
            *(int *)at = (int)whole;
        return r;
    case FIELD_NUMBER:
        return read_number(d, v, (void *)at, f);
    case FIELD_PAIR:
        return read_pair(d, v, (void *)at, f);
    case FIELD_SWITCH:
        if (!json_is_boolean(v) && !(json_is_string(v) && strcmp(json_string_value(v), "auto") == 0)) {
            faults_add(f, d->path, "want true, false or \"auto\", got %s", got(v, what));
            return -EINVAL;
        }
        *(int *)at = json_is_boolean(v) ? json_is_true(v) : SPEC_AUTO_SWITCH;
        return 0;
    case FIELD_BOOL:
        if (!json_is_boolean(v)) {
            faults_add(f, d->path, "want true or false, got %s", got(v, what));
            return -EINVAL;
        }
        *(bool *)at = json_is_true(v);
        return 0;
    case FIELD_NAME:
        return read_name(d, v, at, f);
    case FIELD_ENUM:
    case FIELD_WORD:
    case FIELD_FIXED:
        r = read_word(d, v, &index, f);
        if (r == 0 && d->type == FIELD_ENUM)
            memcpy(at, &index, sizeof(index));
        else if (r == 0 && d->type == FIELD_WORD)
            memcpy(at, d->words[index], strlen(d->words[index]) + 1);
        return r;
    case FIELD_TEXT:
        return read_text(d, v, (char **)at, f);
    case FIELD_NAMES:
        return read_names(d, v, (void *)at, f);
    case FIELD_COUNTS:
        return read_counts(d, v, (void *)at, f);
    case FIELD_ARGV:
        return read_argv(d, v, (char ***)at, f);
    case FIELD_ENV:
        return read_env(d, v, (char ***)at, f);
    case FIELD_LABELS:
        return read_labels(d, v, (char ***)at, f);
    case FIELD_AFTER:
        *(json_t **)at = spec_after_read(v, d->path, f);
        return *(json_t **)at ? 0 : -EINVAL;
    case FIELD_VALUES:
        if (!json_is_object(v)) {
            faults_add(f, d->path, "want an object, got %s", got(v, what));
            return -EINVAL;
        }
        *(json_t **)at = json_incref((json_t *)v);
        return 0;
    }
    abort();
}

/* --- the document's shape ------------------------------------------------------------------------------ */

/* '/' of an object that has fields, 0 of a field, -1 of what is neither. */
static int path_kind(const char *path)
{
    size_t len = strlen(path);

    for (size_t i = 0; i < spec_fields_n; i++) {
        const char *p = spec_fields[i].path;

        if (p[1] == path[1] && strncmp(p, path, len) == 0 && (p[len] == '/' || !p[len]))
            return p[len];
    }
    return -1;
}

/* Names that may stand in the object at prefix. storage keeps their text. Returns their number. */
static size_t children(const char *prefix, char storage[][32], const char *names[], size_t limit)
{
    size_t n = 0, len = strlen(prefix);

    for (size_t i = 0; i < spec_fields_n && n < limit; i++) {
        const char *p = spec_fields[i].path;
        size_t end;

        if (strncmp(p, prefix, len) != 0 || p[len] != '/')
            continue;
        end = strcspn(p + len + 1, "/");
        assert(end < 32);
        if (n > 0 && strlen(names[n - 1]) == end && strncmp(names[n - 1], p + len + 1, end) == 0)
            continue;
        memcpy(storage[n], p + len + 1, end);
        storage[n][end] = '\0';
        names[n] = storage[n];
        n++;
    }
    return n;
}

/* prefix + "/" + key as a JSON pointer, a long key cut. */
static void pointer_of(const char *prefix, const char *key, char out[256])
{
    size_t n = (size_t)snprintf(out, 256, "%s/", prefix);

    for (; *key && n < 250; key++) {
        if (*key == '~' || *key == '/') {
            out[n++] = '~';
            out[n++] = *key == '~' ? '0' : '1';
        } else {
            out[n++] = *key;
        }
    }
    out[n] = '\0';
}

static void check_names(const json_t *o, const char *prefix, struct faults *f)
{
    char storage[64][32], pointer[256];
    const char *names[64], *key;
    json_t *v;

    json_object_foreach ((json_t *)o, key, v) {
        int kind;

        pointer_of(prefix, key, pointer);
        kind = path_kind(pointer);
        if (kind == '/') {
            if (json_is_object(v)) {
                check_names(v, pointer, f);
            } else {
                char what[96];

                faults_add(f, pointer, "want an object, got %s", got(v, what));
            }
        } else if (kind < 0) {
            faults_add_unknown(f, pointer, "field", key, names, children(prefix, storage, names, 64));
        }
    }
}

static const json_t *lookup(const json_t *o, const char *path)
{
    char name[32];

    while (o && *path) {
        size_t len = strcspn(path + 1, "/");

        assert(len < sizeof(name));
        memcpy(name, path + 1, len);
        name[len] = '\0';
        o = json_object_get(o, name); /* NULL unless o is an object */
        path += len + 1;
    }
    return o;
}

/* Whether something that is no object stands where the path has one: that is said once, nothing is missing below. */
static bool hidden(const json_t *o, const char *path)
{
    char name[32];

    for (size_t len; json_is_object(o) && *path; path += len + 1) {
        len = strcspn(path + 1, "/");
        assert(len < sizeof(name));
        memcpy(name, path + 1, len);
        name[len] = '\0';
        o = json_object_get(o, name);
    }
    return o && *path;
}

json_t *spec_write_out(const json_t *doc)
{
    json_auto_t *copy = json_copy((json_t *)doc);
    json_t *train = json_object_get(doc, "train");
    const json_t *model = json_object_get(train, "model"), *command = json_object_get(doc, "command");
    const json_t *parallel = json_object_get(doc, "parallel");

    if (json_is_string(model)) {
        train = json_copy(train);
        if (json_object_set_new(copy, "train", train) < 0 ||
            json_object_set_new(train, "model", json_pack("{s:O}", "preset", model)) < 0)
            return NULL;
    }
    if (json_is_string(command) &&
        json_object_set_new(copy, "command", json_pack("{s:[s,s,O]}", "argv", "/bin/sh", "-c", command)) < 0)
        return NULL;
    if (json_is_string(parallel) &&
        json_object_set_new(copy, "parallel",
                            json_pack("{s:O,s:O,s:O,s:O,s:O,s:O,s:O,s:O}", "tp", parallel, "pp", parallel, "cp",
                                      parallel, "schedule", parallel, "chunks", parallel, "recompute", parallel,
                                      "sequence_parallel", parallel, "virtual_workers", parallel)) < 0)
        return NULL;
    return json_incref(copy);
}

/* Count values and depth; false past a limit. */
static bool within(const json_t *v, int depth, size_t *left)
{
    const char *key;
    json_t *child;
    size_t i;

    if (depth > SPEC_DEPTH_MAX || (*left)-- == 0)
        return false;
    if (json_is_object(v)) {
        json_object_foreach ((json_t *)v, key, child) {
            if (!within(child, depth + 1, left))
                return false;
        }
    } else {
        json_array_foreach ((json_t *)v, i, child) {
            if (!within(child, depth + 1, left))
                return false;
        }
    }
    return true;
}

static enum job_kind kind_of(const json_t *doc, struct faults *f)
{
    const json_t *train = json_object_get(doc, "train"), *command = json_object_get(doc, "command");
    static const char *const only_train[] = {"parallel", "compress", "sequence", "memory", "checkpoint"};

    if (!train && !command)
        faults_add(f, "", "a job needs \"train\" or \"command\"");
    else if (train && command)
        faults_add(f, "", "a job has \"train\" or \"command\", not both");
    else if (command)
        for (size_t i = 0; i < sizeof(only_train) / sizeof(only_train[0]); i++)
            if (json_object_get(doc, only_train[i])) {
                char pointer[32];

                (void)snprintf(pointer, sizeof(pointer), "/%s", only_train[i]);
                faults_add(f, pointer, "is for jobs with \"train\"; a command looks after this itself");
            }
    return command && !train ? JOB_COMMAND : JOB_TRAIN;
}

static bool in_scope(const struct field *d, enum job_kind kind, bool array)
{
    if (d->scope == SCOPE_ARRAY || array)
        return array == (d->scope == SCOPE_ARRAY);
    return d->scope == SCOPE_ALL || d->scope == (kind == JOB_TRAIN ? SCOPE_TRAIN : SCOPE_COMMAND);
}

/* Defaults that are the same for every spec, read from the table once. Texts and lists have none but empty ones. */
static struct job_spec plain;
static int plain_code;

static int read_plain(struct job_spec *s)
{
    struct faults f = {.n = 0};

    for (size_t i = 0; i < spec_fields_n; i++) {
        const struct field *d = &spec_fields[i];
        json_t *v;
        int r;

        if (!d->def || d->type == FIELD_ENV || d->type == FIELD_LABELS || d->type == FIELD_NAMES ||
            d->type == FIELD_VALUES || d->type == FIELD_AFTER)
            continue;
        v = json_loads(d->def, JSON_DECODE_ANY, NULL);
        if (!v)
            return -ENOMEM;
        r = read_field(d, v, s, &f);
        json_decref(v);
        if (r == -ENOMEM)
            return r;
        assert(r == 0); /* the table is right */
    }
    return 0;
}

static void make_plain(void)
{
    plain_code = read_plain(&plain);
}

static int plain_defaults(struct job_spec *s)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, make_plain);
    if (plain_code == 0)
        *s = plain;
    return plain_code;
}

/* The fields of the array, or all others. */
static int read_all(struct reading *r, const json_t *doc, bool array)
{
    for (size_t i = 0; i < spec_fields_n; i++) {
        const struct field *d = &spec_fields[i];
        const json_t *v = lookup(doc, d->path);
        int code;

        if (in_scope(d, r->spec->kind, array) && !v && hidden(doc, d->path))
            r->state[i] = READ_BAD;
        if (!in_scope(d, r->spec->kind, array) || !v)
            continue;
        code = read_field(d, v, r->spec, r->f);
        if (code == -ENOMEM)
            return code;
        r->state[i] = code == 0 ? READ_GIVEN : READ_BAD;
    }
    return 0;
}

/* All but the array's fields. */
static int read_job(struct reading *r, const json_t *full)
{
    TRY(read_all(r, full, false));
    TRY(spec_complete(r));
    if (json_object_get(full, "train") || json_object_get(full, "command"))
        spec_check(r);
    return 0;
}

static int read_document(struct reading *r, const json_t *full)
{
    size_t before = r->f->n + r->f->more;
    json_auto_t *first = NULL;

    TRY(plain_defaults(r->spec));
    r->spec->kind = kind_of(full, r->f);
    check_names(full, "", r->f);
    if (!json_object_get(full, "array"))
        return read_job(r, full);
    TRY(read_all(r, full, true));
    spec_check_array(r);
    if (r->f->n + r->f->more > before)
        return 0;
    first = spec_fill_task(full, r->spec, 0, "j0", NULL, r->f);
    if (!first)
        return r->f->n + r->f->more > before ? 0 : -ENOMEM;
    return read_job(r, first);
}

int spec_from_json(const json_t *doc, struct job_spec **ret_spec, struct faults *f)
{
    size_t before = f->n + f->more, left = SPEC_VALUES_MAX;
    struct reading r = {.f = f};
    json_auto_t *full = NULL;
    int code;

    if (!json_is_object(doc)) {
        faults_add(f, "", "want an object with the fields of a job");
        return -EINVAL;
    }
    if (!within(doc, 0, &left)) {
        faults_add(f, "", "more than %d values, or nested deeper than %d", SPEC_VALUES_MAX, SPEC_DEPTH_MAX);
        return -EINVAL;
    }
    full = spec_write_out(doc);
    r.spec = calloc(1, sizeof(*r.spec));
    code = full && r.spec ? read_document(&r, full) : -ENOMEM;
    if (code < 0 || f->n + f->more > before) {
        spec_free(r.spec);
        return code < 0 ? code : -EINVAL;
    }
    *ret_spec = r.spec;
    return 0;
}

static void free_list(char **list)
{
    for (char **p = list; p && *p; p++)
        free(*p);
    free(list);
}

void spec_free(struct job_spec *spec)
{
    int saved = errno;

    if (!spec)
        return;
    for (size_t i = 0; i < spec_fields_n; i++) {
        char *at = (char *)spec + spec_fields[i].at;

        if (spec_fields[i].type == FIELD_TEXT)
            free(*(char **)at);
        else if (spec_fields[i].type == FIELD_ARGV || spec_fields[i].type == FIELD_ENV ||
                 spec_fields[i].type == FIELD_LABELS)
            free_list(*(char ***)at);
        else if (spec_fields[i].type == FIELD_VALUES || spec_fields[i].type == FIELD_AFTER)
            json_decref(*(json_t **)at);
    }
    free(spec);
    errno = saved;
}
