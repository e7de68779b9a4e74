/* open_safetensors - safetensors files as a read-only checkpoint: one made-up data file a tensor, without checksums */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "base/try.h"
#include "checkpoint/format/dtype.h"
#include "checkpoint/format/input.h"
#include "checkpoint/format/safetensors.h"
#include "checkpoint/read/read.h"

#define INDEX_BYTES_MAX (64u << 20)
#define FILES_MAX 10000
#define STRIP "transformer."

struct opening {
    struct mck *c;
    struct all {
        struct safetensor t; /* name owned */
        uint32_t path;
        uint64_t base;
    } * v;
    size_t n, cap;
};

static int add_path(struct mck *c, const char *path, struct merr *err)
{
    char **more = realloc(c->paths, (c->path_count + 1) * sizeof(*more));

    if (!more)
        return merr_set(err, -ENOMEM, "no memory");
    c->paths = more;
    more[c->path_count] = strdup(path);
    if (!more[c->path_count])
        return merr_set(err, -ENOMEM, "no memory");
    c->path_count++;
    return 0;
}

static int take_tensors(struct opening *m, struct safetensors *s, uint64_t base, struct merr *err)
{
    if (m->n + s->n > m->cap) {
        struct all *more = realloc(m->v, (m->n + s->n) * sizeof(*more));

        if (!more)
            return merr_set(err, -ENOMEM, "no memory for %zu tensors", m->n + s->n);
        m->v = more;
        m->cap = m->n + s->n;
    }
    for (size_t i = 0; i < s->n; i++) {
        struct all *a = &m->v[m->n++];
        char *name = s->v[i].name;

        *a = (struct all){.t = s->v[i], .path = (uint32_t)m->c->path_count - 1, .base = base};
        s->v[i].name = NULL;
        if (!strncmp(name, STRIP, strlen(STRIP)) && name[strlen(STRIP)])
            memmove(name, name + strlen(STRIP), strlen(name + strlen(STRIP)) + 1);
    }
    return 0;
}

static int read_header(int fd, const char *path, uint64_t *ret_base, struct safetensors *ret, struct merr *err)
{
    struct stat st;
    uint64_t len;
    char *json;
    int r;

    if (fstat(fd, &st))
        return merr_errno(err, -errno, "cannot read '%s'", path);
    if (!S_ISREG(st.st_mode) || st.st_size < 8 || input_read(fd, &len, 8, 0))
        return merr_set(err, -EBADMSG, "'%s' is no safetensors file: it is too short", path);
    if (len > SAFETENSORS_HEADER_MAX || len > (uint64_t)st.st_size - 8)
        return merr_set(err, -EBADMSG, "'%s' is no safetensors file: its header length is impossible", path);
    json = malloc(len + 1);
    if (!json)
        return merr_set(err, -ENOMEM, "no memory for the header of '%s'", path);
    r = input_read(fd, json, len, 8);
    if (r < 0)
        r = merr_errno(err, r, "cannot read '%s'", path);
    else if ((r = safetensors_parse(json, len, (uint64_t)st.st_size - 8 - len, ret, err)) < 0)
        r = merr_prefix(err, r, "'%s'", path);
    *ret_base = 8 + len;
    free(json);
    return r;
}

static int add_file(struct opening *m, const char *path, struct merr *err)
{
    IO_CLOSE_AUTO int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct safetensors s = {0};
    uint64_t base = 0;
    int r;

    if (fd < 0)
        return merr_errno(err, -errno, "cannot open '%s'", path);
    r = read_header(fd, path, &base, &s, err);
    if (r == 0)
        r = add_path(m->c, path, err);
    if (r == 0)
        r = take_tensors(m, &s, base, err);
    safetensors_clear(&s);
    return r;
}

/* The files an index names; each plain name in the index's own folder. */
static int add_index(struct opening *m, const char *folder, const char *index, struct merr *err)
{
    json_auto_t *doc = NULL, *seen = json_object();
    char path[MCK_PATH_MAX];
    const char *tensor;
    struct buf b;
    json_t *file;
    int r;

    buf_init(&b, INDEX_BYTES_MAX);
    r = io_read_file(index, &b, err);
    if (r == 0)
        doc = json_loadb(buf_text(&b), b.len, JSON_REJECT_DUPLICATES, NULL);
    buf_clear(&b);
    if (r < 0)
        return r;
    if (!json_is_object(json_object_get(doc, "weight_map")))
        return merr_set(err, -EBADMSG, "'%s' has no weight_map", index);
    json_object_foreach (json_object_get(doc, "weight_map"), tensor, file) {
        const char *name = json_string_value(file);

        if (!name || !*name || strchr(name, '/') || *name == '.')
            return merr_set(err, -EBADMSG, "'%s': tensor '%.100s' is in no plainly named file", index, tensor);
        if (json_object_get(seen, name))
            continue;
        (void)json_object_set_new(seen, name, json_true());
        if (json_object_size(seen) > FILES_MAX)
            return merr_set(err, -EBADMSG, "'%s' names over %d files", index, FILES_MAX);
        TRY(folder_join(folder, name, path, err));
        TRY(add_file(m, path, err));
    }
    return 0;
}

static int add_folder(struct opening *m, const char *folder, struct merr *err)
{
    char path[MCK_PATH_MAX];

    TRY(folder_join(folder, "model.safetensors", path, err));
    if (access(path, F_OK) == 0)
        return add_file(m, path, err);
    TRY(folder_join(folder, "model.safetensors.index.json", path, err));
    if (access(path, F_OK))
        return merr_set(err, -ENOENT, "there is neither model.safetensors nor model.safetensors.index.json in '%s'",
                        folder);
    return add_index(m, folder, path, err);
}

/* --- the tables ---------------------------------------------------------------------------------- */

static int compare_names(const void *x, const void *y)
{
    return strcmp(((const struct all *)x)->t.name, ((const struct all *)y)->t.name);
}

static int allocate(struct opening *m, struct merr *err)
{
    struct mck_index *ix = &m->c->ix;
    size_t strings = 1;

    for (size_t i = 0; i < m->n; i++)
        strings += strlen(m->v[i].t.name);
    ix->strings = malloc(strings);
    ix->file = calloc(m->n + 1, sizeof(*ix->file));
    ix->tensor = calloc(m->n + 1, sizeof(*ix->tensor));
    ix->shard = calloc(m->n + 1, sizeof(*ix->shard));
    m->c->source = calloc(m->n + 1, sizeof(*m->c->source));
    if (!ix->strings || !ix->file || !ix->tensor || !ix->shard || !m->c->source)
        return merr_set(err, -ENOMEM, "no memory for %zu tensors", m->n);
    return 0;
}

static void add_entry(struct mck *c, const struct all *a)
{
    struct mck_index *ix = &c->ix;
    size_t i = ix->tensors++, len = strlen(a->t.name);
    uint64_t bytes = a->t.end - a->t.begin;
    struct mck_tensor *t = &ix->tensor[i];
    struct mck_shard *s = &ix->shard[ix->shards];

    memcpy(ix->strings + ix->strings_len, a->t.name, len);
    *t = (struct mck_tensor){.name_off = ix->strings_len,
                             .name_len = (uint32_t)len,
                             .dtype = (uint8_t)a->t.dtype,
                             .role = MCK_MASTER,
                             .ndim = (uint8_t)a->t.ndim,
                             .shard_first = (uint32_t)ix->shards,
                             .shard_count = bytes > 0};
    ix->strings_len += len;
    for (int d = 0; d < MCK_DIMS_MAX; d++)
        t->shape[d] = d < a->t.ndim ? a->t.shape[d] : 1;
    ix->file[ix->files] = (struct mck_file){.file_id = (uint32_t)ix->files, .stream_len = bytes};
    c->source[ix->files] = (struct mck_source){.path = a->path, .base = a->base + a->t.begin, .foreign = true};
    if (bytes) {
        *s = (struct mck_shard){.tensor = (uint32_t)i,
                                .file_id = (uint32_t)ix->files,
                                .bytes = bytes,
                                .sub_end = bytes / dtype_size((int)a->t.dtype),
                                .replicas = 1};
        memcpy(s->len, t->shape, sizeof(s->len));
        ix->shards++;
    }
    ix->files++;
}

static int make_tables(struct opening *m, struct merr *err)
{
    TRY(allocate(m, err));
    if (m->n)
        qsort(m->v, m->n, sizeof(*m->v), compare_names);
    for (size_t i = 0; i < m->n; i++) {
        if (i && !strcmp(m->v[i].t.name, m->v[i - 1].t.name))
            return merr_set(err, -EBADMSG, "tensor '%s' is there twice", m->v[i].t.name);
        add_entry(m->c, &m->v[i]);
    }
    return 0;
}

/* config.json beside the weights becomes the cursor's "model", so that an export gives it back. */
static int make_kv(struct mck *c, const char *folder, struct merr *err)
{
    char path[MCK_PATH_MAX];
    json_t *model = NULL;

    if (folder_join(folder, "config.json", path, NULL) == 0)
        model = json_load_file(path, 0, NULL);
    c->kv = json_pack("{s:i}", "step", 0);
    if (!c->kv) {
        json_decref(model);
        return merr_set(err, -ENOMEM, "no memory");
    }
    if (json_is_object(model))
        (void)json_object_set_new(c->kv, "model", model);
    else
        json_decref(model);
    return 0;
}

/* A folder, an index or a file; folder is where it is. */
static int add_all(struct opening *m, const char *path, char folder[MCK_PATH_MAX], struct merr *err)
{
    char *slash;
    struct stat st;

    if (snprintf(folder, MCK_PATH_MAX, "%s", path) >= MCK_PATH_MAX)
        return merr_set(err, -ENAMETOOLONG, "the path of the weights is too long");
    if (stat(path, &st))
        return merr_errno(err, -errno, "cannot open '%s'", path);
    if (S_ISDIR(st.st_mode))
        return add_folder(m, path, err);
    slash = strrchr(folder, '/');
    (void)snprintf(slash ? slash : folder, 2, "%s", slash == folder ? "/" : slash ? "" : ".");
    return strlen(path) > 5 && !strcmp(path + strlen(path) - 5, ".json") ? add_index(m, folder, path, err)
                                                                         : add_file(m, path, err);
}

static int open_all(struct opening *m, const char *path, struct merr *err)
{
    char folder[MCK_PATH_MAX];

    TRY(add_all(m, path, folder, err));
    memcpy(m->c->path, path, strlen(path) + 1);
    TRY(make_tables(m, err));
    return make_kv(m->c, folder, err);
}

int mck_open_safetensors(const char *path, struct mck **ret, struct merr *err)
{
    struct opening m = {.c = read_alloc()};
    int r = m.c ? open_all(&m, path, err) : merr_set(err, -ENOMEM, "no memory");

    for (size_t i = 0; i < m.n; i++)
        free(m.v[i].t.name);
    free(m.v);
    if (r < 0)
        mck_free(m.c);
    else
        *ret = m.c;
    return r;
}
