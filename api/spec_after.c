#include "api/spec_after.h"

#include <stdio.h>
#include <string.h>

#include "api/template.h"

const char *const spec_when_names[] = {"ok", "ended", "failed", "started", NULL};

static bool is_job(const char *id)
{
    return id && id[0] == 'j' && id[1] >= '1' && id[1] <= '9' && strlen(id) <= 16 &&
           strspn(id + 1, "0123456789") == strlen(id + 1);
}

static bool is_when(const char *when)
{
    for (size_t i = 0; spec_when_names[i]; i++)
        if (strcmp(spec_when_names[i], when) == 0)
            return true;
    return false;
}

/* One of the list as it is kept; NULL: it is none. */
static json_t *read_one(const json_t *o)
{
    const char *job = json_string_value(json_object_get(o, "job"));
    const json_t *when = json_object_get(o, "when");
    const char *text = when ? json_string_value(when) : "ok";

    if (!is_job(job) || !text || !is_when(text) || json_object_size(o) != (size_t)(1 + (when != NULL)))
        return NULL;
    return json_pack("{s:s, s:s}", "job", job, "when", text);
}

json_t *spec_after_read(const json_t *v, const char *pointer, struct faults *f)
{
    json_t *all = json_array();

    if (!json_is_array(v) || json_array_size(v) > SPEC_AFTER_MAX)
        faults_add(f, pointer, "want an array of at most %d jobs", SPEC_AFTER_MAX);
    for (size_t i = 0; i < json_array_size(v) && i < SPEC_AFTER_MAX; i++) {
        json_t *one = read_one(json_array_get(v, i));
        char at[80];

        (void)snprintf(at, sizeof(at), "%s/%zu", pointer, i);
        if (!one)
            faults_add(f, at, "want {\"job\": \"j17\", \"when\": W} with W ok, ended, failed or started");
        else
            (void)json_array_append_new(all, one);
    }
    if (json_is_array(v) && json_array_size(all) == json_array_size(v))
        return all;
    json_decref(all);
    return NULL;
}

struct filling {
    const json_t *names;
    struct faults *f;
};

static void fill_below(const struct filling *w, const char *path, json_t *o);

static void fill_one(const struct filling *w, const char *path, json_t *o, const char *key, size_t i, json_t *v)
{
    const char *text = json_string_value(v);
    struct merr err = {""};
    json_t *new;

    if (!text || !strstr(text, "${{after.")) {
        fill_below(w, path, v);
        return;
    }
    new = template_fill(text, w->names, &err);
    if (!new)
        faults_add(w->f, path, "%s", err.text);
    else if (key)
        (void)json_object_set_new(o, key, new);
    else
        (void)json_array_set_new(o, i, new);
}

static void fill_below(const struct filling *w, const char *path, json_t *o)
{
    char below[256];
    const char *key;
    json_t *v;
    void *next;
    size_t i;

    json_object_foreach_safe(o, next, key, v)
    {
        (void)snprintf(below, sizeof(below), "%.180s/%.64s", path, key);
        fill_one(w, below, o, key, 0, v);
    }
    json_array_foreach (o, i, v) {
        (void)snprintf(below, sizeof(below), "%.200s/%zu", path, i);
        fill_one(w, below, o, NULL, i, v);
    }
}

void spec_after_fill(json_t *doc, const char *jobs_dir, struct faults *f)
{
    const json_t *after = json_object_get(doc, "after"), *one;
    json_t *init = json_object_get(json_object_get(doc, "train"), "init"), *from = json_object_get(init, "from");
    const char *source = json_is_object(from) ? json_string_value(json_object_get(from, "job")) : NULL;
    const json_t *step = json_object_get(from, "step");
    json_auto_t *names = json_object();
    struct filling w = {.names = names, .f = f};
    size_t i;

    json_array_foreach (after, i, one) {
        const char *job = json_string_value(json_object_get(one, "job"));
        char name[32];

        (void)snprintf(name, sizeof(name), "after.%zu.dir", i);
        if (is_job(job))
            (void)json_object_set_new(names, name, json_sprintf("%s/%s", jobs_dir, job));
    }
    if (is_job(source) && json_object_size(from) == 1)
        (void)json_object_set_new(init, "from", json_sprintf("%s/%s/checkpoints", jobs_dir, source));
    else if (is_job(source) && json_object_size(from) == 2 && json_is_integer(step) && json_integer_value(step) >= 0)
        (void)json_object_set_new(
            init, "from",
            json_sprintf("%s/%s/checkpoints:%lld", jobs_dir, source, (long long)json_integer_value(step)));
    fill_below(&w, "", doc);
}
