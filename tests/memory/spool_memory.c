#include "tests/memory/spool_memory.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

#define BUCKETS 4096

struct file {
    char name[SPOOL_NAME_MAX];
    struct buf text;
    struct file *next;
};

struct place { /* of a job */
    uint64_t job;
    struct file *files;
    json_t *saved;      /* NULL: no checkpoint */
    struct place *next; /* of its bucket */
};

struct spool_memory {
    spool_fault_fn *fault; /* NULL: none */
    void *arg;
    uint64_t newest;               /* that place was made for */
    struct place *bucket[BUCKETS]; /* by job */
};

static struct place **place_at(struct spool_memory *m, uint64_t job)
{
    struct place **at = &m->bucket[job % BUCKETS];

    while (*at && (*at)->job != job)
        at = &(*at)->next;
    return at;
}

static struct file **file_at(struct place *place, const char *name)
{
    struct file **at = &place->files;

    while (*at && strcmp((*at)->name, name) != 0)
        at = &(*at)->next;
    return at;
}

static void file_drop(struct file **at)
{
    struct file *f = *at;

    *at = f->next;
    buf_clear(&f->text);
    free(f);
}

static int make(void *self, uint64_t job, struct merr *err)
{
    struct spool_memory *m = self;
    struct place **at = place_at(m, job);

    m->newest = job > m->newest ? job : m->newest;
    if (*at)
        return 0;
    *at = calloc(1, sizeof(**at));
    if (!*at)
        return merr_set(err, -ENOMEM, "out of memory");
    (*at)->job = job;
    return 0;
}

static int newest(void *self, uint64_t *ret_job, struct merr *err)
{
    (void)err;
    *ret_job = ((const struct spool_memory *)self)->newest;
    return 0;
}

static void drop(void *self, uint64_t job)
{
    struct place **at = place_at(self, job), *place = *at;

    if (!place)
        return;
    while (place->files)
        file_drop(&place->files);
    *at = place->next;
    json_decref(place->saved);
    free(place);
}

static void drop_file(void *self, uint64_t job, const char *name)
{
    struct place *place = *place_at(self, job);
    struct file **at = place ? file_at(place, name) : NULL;

    if (at && *at)
        file_drop(at);
}

static bool known(void *self, uint64_t job)
{
    return *place_at(self, job) != NULL;
}

static int list(void *self, uint64_t job, spool_name_fn *fn, void *arg)
{
    const struct place *place = *place_at(self, job);

    for (const struct file *f = place ? place->files : NULL; f; f = f->next)
        fn(arg, f->name);
    return place ? 0 : -ENOENT;
}

/* A file of a place, made when missing; NULL: no memory. */
static struct file *file_get(struct place *place, const char *name)
{
    struct file **at = file_at(place, name);

    if (!*at && (*at = calloc(1, sizeof(**at)))) {
        (void)snprintf((*at)->name, SPOOL_NAME_MAX, "%s", name);
        buf_init(&(*at)->text, (size_t)SPOOL_FILE_MAX * 2);
    }
    return *at;
}

static int mark(void *self, uint64_t job, const char *name)
{
    struct place *place = *place_at(self, job);

    return !place ? -ENOENT : file_get(place, name) ? 0 : -ENOMEM;
}

static int put(void *self, uint64_t job, const char *name, const char *text, size_t len)
{
    struct place *place = *place_at(self, job);
    struct file *f = place ? file_get(place, name) : NULL;

    if (!f)
        return place ? -ENOMEM : -ENOENT;
    buf_clear(&f->text);
    buf_init(&f->text, (size_t)SPOOL_FILE_MAX * 2);
    return buf_add(&f->text, text, len);
}

static int64_t append(void *self, uint64_t job, const char *name, int64_t offset, const char *text, size_t len,
                      bool *ret_new)
{
    struct spool_memory *m = self;
    struct place *place = *place_at(m, job);
    struct file *f;
    size_t kept = 0;
    int r;

    if (!place)
        return -ENOENT;
    f = file_get(place, name);
    if (!f)
        return -ENOMEM;
    if (f->text.len >= SPOOL_FILE_MAX)
        return offset + (int64_t)len;
    if ((int64_t)f->text.len != offset)
        return (int64_t)f->text.len;
    r = m->fault ? m->fault(m->arg, len, &kept) : 0;
    assert(kept <= len);
    if (r < 0) {
        (void)buf_add(&f->text, text, kept);
        return r;
    }
    r = buf_add(&f->text, text, len);
    if (r < 0)
        return r;
    *ret_new = true;
    return (int64_t)f->text.len;
}

static ssize_t read_at(void *self, uint64_t job, const char *name, int64_t offset, char *to, size_t n,
                       int64_t *ret_length)
{
    struct place *place = *place_at(self, job);
    const struct file *f = place ? *file_at(place, name) : NULL;
    size_t left;

    if (!f)
        return -ENOENT;
    left = offset < (int64_t)f->text.len ? f->text.len - (size_t)offset : 0;
    n = n < left ? n : left;
    if (n > 0)
        memcpy(to, f->text.data + offset, n);
    *ret_length = (int64_t)f->text.len;
    return (ssize_t)n;
}

static int saved(void *self, uint64_t job, const char *dir, json_t **ret)
{
    const struct place *place = *place_at(self, job);

    *ret = json_array();
    if (place && place->saved && strcmp(dir, "checkpoints") == 0)
        (void)json_array_extend(*ret, place->saved);
    return 0;
}

void spool_memory_set_saved(struct spool_memory *m, uint64_t job, json_t *steps)
{
    struct place *place = *place_at(m, job);

    json_decref(place->saved);
    place->saved = steps;
}

struct spool_memory *spool_memory_new(struct spool *ret_spool)
{
    static const struct spool_ops ops = {
        .make = make,
        .newest = newest,
        .drop = drop,
        .drop_file = drop_file,
        .known = known,
        .list = list,
        .append = append,
        .mark = mark,
        .put = put,
        .read = read_at,
        .saved = saved,
    };
    struct spool_memory *m = calloc(1, sizeof(*m));

    if (m)
        *ret_spool = (struct spool){.ops = &ops, .self = m};
    return m;
}

void spool_memory_free(struct spool_memory *m)
{
    if (!m)
        return;
    for (size_t i = 0; i < BUCKETS; i++)
        while (m->bucket[i])
            drop(m, m->bucket[i]->job);
    free(m);
}

void spool_memory_set_fault(struct spool_memory *m, spool_fault_fn *fault, void *arg)
{
    m->fault = fault;
    m->arg = arg;
}
