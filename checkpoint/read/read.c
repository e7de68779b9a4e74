#include "checkpoint/read/read.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/try.h"
#include "checkpoint/format/dtype.h"
#include "checkpoint/format/input.h"
#include "checkpoint/format/part.h"

#define LEASE_WAIT_US 500000

struct mck *read_alloc(void)
{
    struct mck *c = calloc(1, sizeof(*c));

    if (c)
        c->lease = -1;
    return c;
}

void mck_free(struct mck *c)
{
    if (!c)
        return;
    index_clear(&c->ix);
    for (size_t i = 0; i < c->path_count; i++)
        free(c->paths[i]);
    free(c->paths);
    free(c->source);
    json_decref(c->kv);
    io_close(&c->lease);
    free(c);
}

uint64_t mck_step(const struct mck *c)
{
    return c->ix.step;
}

const json_t *mck_kv(const struct mck *c)
{
    return c->kv;
}

void mck_watch(struct mck *c, void (*tell)(void *arg, uint64_t done, uint64_t all), void *arg)
{
    c->watch = (struct read_watch){.tell = tell, .arg = arg};
}

void read_watch_begin(struct mck *c, uint64_t all)
{
    c->watch.all = all;
    c->watch.done = 0;
}

void read_watch_add(struct mck *c, uint64_t bytes)
{
    c->watch.done += bytes;
    if (c->watch.tell)
        c->watch.tell(c->watch.arg, c->watch.done, c->watch.all);
}

int read_open_file(const struct mck *c, uint32_t f, struct merr *err)
{
    int fd = input_open(c->paths[c->source[f].path], err);

    return fd == -ENOENT ? -EBADMSG : fd;
}

void read_chunk_entry(const struct mck *c, uint32_t f, uint64_t i, struct mck_chunk *ret)
{
    const struct mck_file *file = &c->ix.file[f];
    uint64_t left = file->stream_len - i * MCK_CHUNK;

    if (!c->source[f].foreign) {
        *ret = c->ix.chunk[file->chunk_first + i];
        return;
    }
    *ret = (struct mck_chunk){.file_off = c->source[f].base + i * MCK_CHUNK};
    ret->logical_len = ret->stored_len = left < MCK_CHUNK ? (uint32_t)left : MCK_CHUNK;
}

void read_describe(const struct mck *c, const struct mck_tensor *t, char name[MCK_NAME_MAX + 1], struct mck_buffer *ret,
                   uint64_t *ret_volume)
{
    memcpy(name, index_name(&c->ix, t), t->name_len);
    name[t->name_len] = '\0';
    *ret = (struct mck_buffer){
        .name = name, .role = (enum mck_role)t->role, .dtype = (enum mck_dtype)t->dtype, .ndim = t->ndim};
    for (int d = 0; d < t->ndim; d++)
        ret->shape[d] = ret->len[d] = t->shape[d];
    (void)box_product(t->shape, t->ndim, MCK_BYTES_MAX, ret_volume);
}

uint64_t read_tensor_bytes(const struct mck_tensor *t)
{
    uint64_t volume = 0;

    (void)box_product(t->shape, t->ndim, MCK_BYTES_MAX, &volume); /* the index was held to this */
    return volume * dtype_size(t->dtype);
}

uint64_t read_all_bytes(const struct mck *c)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < c->ix.tensors; i++)
        bytes += read_tensor_bytes(&c->ix.tensor[i]);
    return bytes;
}

uint64_t read_stream_bytes(const struct mck *c)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < c->ix.files; i++)
        bytes += c->ix.file[i].stream_len;
    return bytes;
}

bool read_is_layout(const struct mck_index *ix, const struct mck_tensor *t)
{
    return t && t->name_len > 7 && memcmp(index_name(ix, t), "layout.", 7) == 0;
}

json_t *read_meaning(const struct mck *c)
{
    static const char *const informational[] = {"layout", "generation", "written_by", "host", "created", "codec"};
    json_t *kv = json_copy(c->kv);

    for (size_t i = 0; kv && i < sizeof(informational) / sizeof(informational[0]); i++)
        (void)json_object_del(kv, informational[i]);
    return kv;
}

/* --- open -------------------------------------------------------------------------------------- */

/* Open MANIFEST and keep it from being collected. Whoever holds it alone is about to remove it, or has put an archive
 * in its place: after that the path tells which. */
static int take_lease(struct mck *c, const char *manifest)
{
    int64_t deadline = clock_mono_us() + LEASE_WAIT_US;
    struct stat got, there;

    for (;;) {
        c->lease = open(manifest, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (c->lease < 0)
            return -errno;
        if (io_lock(c->lease, LOCK_SH, deadline) == -ETIMEDOUT)
            return 0; /* reading without a lease fails cleanly */
        if (fstat(c->lease, &got) || stat(manifest, &there) || got.st_ino == there.st_ino)
            return 0;
        io_close(&c->lease);
    }
}

/* Into data, len bytes. */
static int decode_manifest(struct mck *c, const char *manifest, void *data, size_t len, struct merr *err)
{
    int r = input_read(c->lease, data, len, 0);

    if (r < 0)
        return merr_set(err, r, "cannot read '%s'", manifest);
    r = index_decode(data, len, MCK_INDEX_MANIFEST, &c->ix, err);
    if (r == 0 && (r = index_check_cover(&c->ix, err)) == -EINVAL)
        r = -EBADMSG;
    return r < 0 ? merr_prefix(err, r, "'%s'", manifest) : 0;
}

static int read_manifest(struct mck *c, const char *manifest, struct merr *err)
{
    struct stat st;
    void *data;
    int r;

    r = take_lease(c, manifest);
    if (r < 0)
        return r == -ENOENT || r == -ENOTDIR
                   ? merr_set(err, -ENOENT, "there is no checkpoint in '%s' (no MANIFEST)", c->path)
                   : merr_errno(err, r, "cannot open '%s'", manifest);
    if (fstat(c->lease, &st) || !S_ISREG(st.st_mode) || (uint64_t)st.st_size > MCK_INDEX_MAX)
        return merr_set(err, -EBADMSG, "'%s' is no file of a possible size", manifest);
    data = malloc((size_t)st.st_size + 1);
    if (!data)
        return merr_set(err, -ENOMEM, "no memory to read '%s'", manifest);
    r = decode_manifest(c, manifest, data, (size_t)st.st_size, err);
    free(data);
    return r;
}

static int make_sources(struct mck *c, struct merr *err)
{
    char path[MCK_PATH_MAX], name[32];

    c->source = calloc(c->ix.files + 1, sizeof(*c->source));
    c->paths = calloc(c->ix.files + 1, sizeof(*c->paths));
    if (!c->source || !c->paths)
        return merr_set(err, -ENOMEM, "no memory for %zu files", c->ix.files);
    for (size_t i = 0; i < c->ix.files; i++) {
        const struct mck_file *f = &c->ix.file[i];

        memcpy(name, c->ix.strings + f->name_off, f->name_len);
        name[f->name_len] = '\0';
        TRY(folder_join(c->path, name, path, err));
        c->source[i].path = (uint32_t)i;
        c->paths[i] = strdup(path);
        if (!c->paths[i])
            return merr_set(err, -ENOMEM, "no memory");
        c->path_count = i + 1;
    }
    return 0;
}

static int parse_kv(struct mck *c, struct merr *err)
{
    json_error_t je;

    c->kv = json_loadb(c->ix.kv, c->ix.kv_len, JSON_REJECT_DUPLICATES, &je);
    if (!json_is_object(c->kv))
        return merr_set(err, -EBADMSG, "the cursor in '%s/MANIFEST' is no JSON object: %s", c->path, je.text);
    return 0;
}

/* A folder under another step's name would be resumed as that step. */
static int check_step(const struct mck *c, struct merr *err)
{
    char path[MCK_PATH_MAX], *name;
    uint64_t step;
    size_t n;

    memcpy(path, c->path, sizeof(path));
    for (n = strlen(path); n > 1 && path[n - 1] == '/'; n--)
        path[n - 1] = '\0';
    name = strrchr(path, '/');
    if (!folder_parse_step(name ? name + 1 : path, &step) || step == c->ix.step)
        return 0;
    return merr_set(err, -EBADMSG, "'%s' holds step %llu: it was renamed or copied from there", path,
                    (unsigned long long)c->ix.step);
}

static int open_whole(struct mck *c, const char *path, struct merr *err)
{
    char manifest[MCK_PATH_MAX];

    TRY(folder_join(path, "MANIFEST", manifest, err));
    memcpy(c->path, path, strlen(path) + 1);
    TRY(read_manifest(c, manifest, err));
    TRY(check_step(c, err));
    TRY(make_sources(c, err));
    return parse_kv(c, err);
}

int mck_open_path(const char *path, struct mck **ret, struct merr *err)
{
    struct mck *c = read_alloc();
    int r = c ? open_whole(c, path, err) : merr_set(err, -ENOMEM, "no memory");

    if (r < 0)
        mck_free(c);
    else
        *ret = c;
    return r;
}

static int open_part(struct mck *c, const char *path, struct merr *err)
{
    TRY(part_read(path, &c->ix, err));
    (void)snprintf(c->path, sizeof(c->path), "%.*s", (int)(strrchr(path, '/') - path), path);
    return make_sources(c, err);
}

int read_open_part(const char *path, struct mck **ret, struct merr *err)
{
    struct mck *c = read_alloc();
    int r = c ? open_part(c, path, err) : merr_set(err, -ENOMEM, "no memory");

    if (r < 0)
        mck_free(c);
    else
        *ret = c;
    return r;
}

int mck_open(const char *dir, uint64_t step, struct mck **ret, struct merr *err)
{
    char path[MCK_PATH_MAX];

    TRY(folder_step_path(dir, step, NULL, path, err));
    return mck_open_path(path, ret, err);
}

int read_quick_check_file(const struct mck *c, uint32_t f, struct merr *err)
{
    return part_check(c->paths[c->source[f].path], c->ix.uuid, f, c->ix.file[f].file_len, err);
}

/* Every file there with its length, id and footer? -EBADMSG says which is not. */
static int quick_check(const struct mck *c, struct merr *err)
{
    for (size_t i = 0; i < c->ix.files; i++)
        TRY(read_quick_check_file(c, (uint32_t)i, err));
    return 0;
}

int read_open_checked(const char *path, struct mck **ret, struct merr *err)
{
    struct mck *c;
    int r;

    TRY(mck_open_path(path, &c, err));
    r = quick_check(c, err);
    if (r < 0)
        mck_free(c);
    else
        *ret = c;
    return r;
}

bool read_is_committed(const char *path)
{
    struct mck *c;

    if (read_open_checked(path, &c, NULL))
        return false;
    mck_free(c);
    return true;
}

/* --- the folder of a job ------------------------------------------------------------------------- */

/* The newest of n steps that passes the quick check. 1, or 0 when none does; why not the others goes to skipped. */
static int find_latest(const char *dir, const uint64_t *step, size_t n, uint64_t *ret_step, json_t *skipped,
                       struct merr *err)
{
    char path[MCK_PATH_MAX];

    while (n-- > 0) {
        struct merr why = {.text = ""};
        struct mck *c;

        TRY(folder_step_path(dir, step[n], NULL, path, err));
        if (read_open_checked(path, &c, &why) == 0) {
            mck_free(c);
            *ret_step = step[n];
            return 1;
        }
        (void)json_array_append_new(skipped, json_pack("{s:I,s:s}", "step", (json_int_t)step[n], "reason", why.text));
    }
    return 0;
}

int mck_latest(const char *dir, uint64_t *ret_step, json_t **ret_skipped, struct merr *err)
{
    json_t *skipped = json_array();
    uint64_t *step = NULL;
    size_t n = 0;
    int r = skipped ? folder_steps(dir, &step, &n, err) : merr_set(err, -ENOMEM, "no memory");

    if (r == 0)
        r = find_latest(dir, step, n, ret_step, skipped, err);
    free(step);
    if (r < 0 || !ret_skipped)
        json_decref(skipped);
    else
        *ret_skipped = skipped;
    return r;
}

static json_t *list_entry(const struct mck *c)
{
    char created[CLOCK_RFC3339_MAX];
    uint64_t stored = 0;

    for (size_t i = 0; i < c->ix.files; i++)
        stored += c->ix.file[i].file_len;
    clock_rfc3339((int64_t)(c->ix.created_ns / 1000), created);
    return json_pack("{s:I,s:s,s:I,s:I,s:s}", "step", (json_int_t)c->ix.step, "path", c->path, "bytes",
                     (json_int_t)read_stream_bytes(c), "stored_bytes", (json_int_t)stored, "created", created);
}

static int list_steps(const char *dir, const uint64_t *step, size_t n, json_t *list, struct merr *err)
{
    char path[MCK_PATH_MAX];
    struct mck *c;

    for (size_t i = 0; i < n; i++) {
        TRY(folder_step_path(dir, step[i], NULL, path, err));
        if (read_open_checked(path, &c, NULL) == 0) {
            (void)json_array_append_new(list, list_entry(c));
            mck_free(c);
        }
    }
    return 0;
}

int mck_list(const char *dir, json_t **ret, struct merr *err)
{
    json_t *list = json_array();
    uint64_t *step = NULL;
    size_t n = 0;
    int r = list ? folder_steps(dir, &step, &n, err) : merr_set(err, -ENOMEM, "no memory");

    if (r == 0)
        r = list_steps(dir, step, n, list, err);
    free(step);
    if (r < 0)
        json_decref(list);
    else
        *ret = list;
    return r;
}
