#include "checkpoint/write/tiles.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/try.h"
#include "checkpoint/format/dtype.h"
#include "checkpoint/format/part.h"
#include "checkpoint/write/coordinate.h"
#include "checkpoint/write/mio.h"
#include "checkpoint/write/plan.h"

#define FILES 2
#define LOOK_MS 1000
#define COMMIT_US (INT64_C(60) * 1000000)

enum tile_state { TILE_EMPTY, TILE_READING, TILE_READ, TILE_TAKEN, TILE_GIVEN, TILE_WRITING };

struct tile { /* a place of the ring */
    enum tile_state state;
    size_t number;
    uint32_t left; /* requests under way */
};

struct transfer {       /* a request; its own free() */
    struct mio_req req; /* must be first */
    struct tile *tile;  /* NULL: of the end of a file */
};

struct tiles {
    struct tiles_cfg cfg; /* dir is an owned copy; buf is not kept */
    struct mck_index index;
    uint64_t stream_len;
    size_t tiles;
    uint32_t chunks;
    char *pool; /* TILES_AT_ONCE times the planes of a tile */
    size_t pool_bytes;

    pthread_t thread;
    bool started;
    int event;
    struct mio *mio; /* of the thread */

    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    bool stop;
    int code; /* the first failure */
    struct merr err;

    int fd[FILES], newest; /* newest: -1 none */
    struct mck_chunk *chunk[FILES];
    struct mck_file_of file[FILES];
    bool opened; /* the file that is not the newest may be written */

    bool active, blank;
    size_t next_read, next_take, given;
    struct tile tile[TILES_AT_ONCE];

    bool sealing, ending, syncing; /* ending: its last bytes are under way */
    uint64_t step;
    char *kv;
    void *tail;
    uint32_t io_left;
    bool works; /* the thread is at a tile without the lock */
};

/* --- places ------------------------------------------------------------------------------------------------ */

static void lock(struct tiles *s)
{
    (void)pthread_mutex_lock(&s->lock);
}

static void unlock(struct tiles *s)
{
    (void)pthread_mutex_unlock(&s->lock);
}

static void wake_thread(struct tiles *s)
{
    uint64_t one = 1;

    (void)!write(s->event, &one, sizeof(one));
}

static int other(const struct tiles *s)
{
    return s->newest == 0 ? 1 : 0;
}

static int file_path(const char *dir, int rank, int file, const char *ending, char out[MCK_PATH_MAX], struct merr *err)
{
    char name[64];

    (void)snprintf(name, sizeof(name), "rank-%05d.%c%s", rank, 'a' + file, ending);
    return folder_join(dir, name, out, err);
}

static size_t tile_len(const struct tiles *s, size_t i)
{
    uint64_t left = s->cfg.plane_bytes - (uint64_t)i * s->cfg.tile_bytes;

    return left < s->cfg.tile_bytes ? (size_t)left : s->cfg.tile_bytes;
}

static char *plane_of(const struct tiles *s, const struct tile *t, int plane)
{
    return s->pool + ((size_t)(t - s->tile) * TILES_PLANES + (size_t)plane) * s->cfg.tile_bytes;
}

/* Of a plane of a tile in the stream. */
static uint64_t stream_at(const struct tiles *s, size_t i, int plane)
{
    return (uint64_t)plane * s->cfg.plane_bytes + (uint64_t)i * s->cfg.tile_bytes;
}

/* The first failure; wakes all. Lock held. */
static void fail(struct tiles *s, int code, const struct merr *why)
{
    if (s->code == 0) {
        s->code = code;
        s->err = *why;
    }
    (void)pthread_cond_broadcast(&s->changed);
}

/* Words of the first failure. Lock held. */
static int failed(const struct tiles *s, struct merr *err)
{
    return s->code == 0 ? 0 : merr_set(err, s->code, "%s", s->err.text);
}

/* --- files ------------------------------------------------------------------------------------------------- */

/* A new file in the place of an old one, whose bytes may be a checkpoint's by now. */
static int make_file(struct tiles *s, int file, struct merr *err)
{
    const int flags = O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC;
    char temp[MCK_PATH_MAX];
    off_t bytes = (off_t)(MCK_ALIGN + s->stream_len);

    TRY(file_path(s->cfg.dir, s->cfg.rank, file, ".tmp", temp, err));
    io_close(&s->fd[file]);
    (void)unlink(temp);
    s->fd[file] = open(temp, flags | mio_open_flags(s->mio), 0644);
    if (s->fd[file] < 0 &&
        errno == EINVAL) { /* a file system without O_DIRECT: it may have made the file all the same */
        (void)unlink(temp);
        s->fd[file] = open(temp, flags, 0644);
    }
    if (s->fd[file] < 0)
        return merr_errno(err, -errno, "cannot make '%s'", temp);
    if (fallocate(s->fd[file], 0, 0, bytes) != 0 && errno != EOPNOTSUPP)
        return merr_errno(err, -errno, "the optimizer's state takes %lld MiB in '%s'", (long long)(bytes >> 20),
                          s->cfg.dir);
    if (rename(temp, s->file[file].path) != 0)
        return merr_errno(err, -errno, "cannot rename '%s'", temp);
    return io_sync_dir(s->cfg.dir, err);
}

/* The file that is not the newest is no data file any more, and may be written. */
static int open_target(struct tiles *s, struct merr *err)
{
    struct stat st;
    int file = other(s);
    void *zero;
    ssize_t n;

    if (fstat(s->fd[file], &st) != 0)
        return merr_errno(err, -errno, "cannot look at '%s'", s->file[file].path);
    if (st.st_nlink > 1)
        return make_file(s, file, err);
    if (posix_memalign(&zero, MCK_ALIGN, MCK_ALIGN) != 0)
        return merr_set(err, -ENOMEM, "no memory for a super block");
    memset(zero, 0, MCK_ALIGN);
    n = pwrite(s->fd[file], zero, MCK_ALIGN, 0);
    free(zero);
    return n == MCK_ALIGN ? 0 : merr_errno(err, n < 0 ? -errno : -EIO, "cannot write '%s'", s->file[file].path);
}

/* --- the thread -------------------------------------------------------------------------------------------- */

/* Lock held. */
static int start(struct tiles *s, enum mio_op op, int file, struct tile *t, void *data, uint32_t len, uint64_t off,
                 struct merr *err)
{
    struct transfer *x = calloc(1, sizeof(*x));

    if (!x)
        return merr_set(err, -ENOMEM, "no memory for a request of the optimizer's files");
    x->req = (struct mio_req){.op = op, .fd = s->fd[file], .len = len, .off = off};
    x->req.data = op == MIO_WRITE ? data : NULL;
    x->req.into = op == MIO_READ ? data : NULL;
    x->tile = t;
    s->io_left++;
    if (t)
        t->left++;
    mio_submit(s->mio, &x->req);
    return 0;
}

static int read_tile(struct tiles *s, struct tile *t, struct merr *err)
{
    size_t len = tile_len(s, t->number);

    t->state = TILE_READING;
    for (int p = 0; p < TILES_PLANES; p++) {
        if (s->blank)
            memset(plane_of(s, t, p), 0, len);
        else if (!(s->cfg.unread & 1u << p))
            TRY(start(s, MIO_READ, s->newest, t, plane_of(s, t, p), (uint32_t)len,
                      MCK_ALIGN + stream_at(s, t->number, p), err));
    }
    if (t->left == 0)
        t->state = TILE_READ;
    return 0;
}

/* The chunks of a plane of a tile, of which the table begins in *ret. */
static size_t chunks_of(const struct tiles *s, int file, const struct tile *t, int plane, struct mck_chunk **ret)
{
    *ret = s->chunk[file] + stream_at(s, t->number, plane) / MCK_CHUNK;
    return tile_len(s, t->number) / MCK_CHUNK;
}

/* What was read is what was written. Lock not held: the tile is the thread's. */
static int check_tile(struct tiles *s, const struct tile *t, struct merr *err)
{
    for (int p = 0; p < TILES_PLANES; p++) {
        struct mck_chunk *c;
        size_t n = chunks_of(s, s->newest, t, p, &c);

        for (size_t i = 0; i < n && !(s->cfg.unread & 1u << p); i++)
            if (hash_crc32c(0, plane_of(s, t, p) + i * MCK_CHUNK, MCK_CHUNK) != c[i].crc32c)
                return merr_set(err, -EBADMSG,
                                "'%s' is damaged at byte %llu: the optimizer's state there is not what "
                                "was written",
                                s->file[s->newest].path, (unsigned long long)c[i].file_off);
    }
    return 0;
}

static void sum_tile(struct tiles *s, const struct tile *t)
{
    for (int p = 0; p < TILES_PLANES; p++) {
        struct mck_chunk *c;
        size_t n = chunks_of(s, other(s), t, p, &c);

        for (size_t i = 0; i < n; i++) {
            const char *data = plane_of(s, t, p) + i * MCK_CHUNK;

            c[i] = (struct mck_chunk){.file_off = MCK_ALIGN + stream_at(s, t->number, p) + i * MCK_CHUNK,
                                      .stored_len = MCK_CHUNK,
                                      .logical_len = MCK_CHUNK,
                                      .flags = (uint16_t)dtype_part_size(MCK_F32),
                                      .crc32c = hash_crc32c(0, data, MCK_CHUNK),
                                      .xxh3 = hash_xxh3(data, MCK_CHUNK)};
        }
    }
}

/* Lock held, dropped meanwhile. */
static int write_tile(struct tiles *s, struct tile *t, struct merr *err)
{
    int r;

    t->state = TILE_WRITING;
    s->works = true;
    unlock(s);
    r = s->opened ? 0 : open_target(s, err);
    s->opened = true;
    sum_tile(s, t);
    lock(s);
    s->works = false;
    for (int p = 0; r == 0 && p < TILES_PLANES; p++)
        r = start(s, MIO_WRITE, other(s), t, plane_of(s, t, p), (uint32_t)tile_len(s, t->number),
                  MCK_ALIGN + stream_at(s, t->number, p), err);
    return r;
}

static int make_tail(struct tiles *s, uint32_t *ret_len, struct merr *err)
{
    struct mck_index ix = s->index; /* borrowed; its strings leave space for the file's name */
    struct mck_file file;
    char name[32];
    int n = snprintf(name, sizeof(name), "rank-%05d.mck", s->cfg.rank), to = other(s);

    memcpy(ix.strings + ix.strings_len, name, (size_t)n);
    file = (struct mck_file){.file_id = (uint32_t)s->cfg.rank,
                             .name_off = (uint32_t)ix.strings_len,
                             .name_len = (uint32_t)n,
                             .stream_len = s->stream_len,
                             .chunk_count = s->chunks,
                             .chunk_table_crc32c = hash_crc32c(0, s->chunk[to], s->chunks * sizeof(*s->chunk[to]))};
    ix.strings_len += (size_t)n;
    ix.step = s->step;
    ix.created_ns = (uint64_t)clock_wall_us() * 1000;
    ix.writers = (uint32_t)s->cfg.size;
    ix.rank = (uint32_t)s->cfg.rank;
    folder_attempt(s->cfg.generation, s->step, 0, ix.uuid);
    memcpy(s->file[to].uuid, ix.uuid, sizeof(ix.uuid));
    ix.file = &file;
    ix.files = 1;
    ix.chunk = s->chunk[to];
    ix.chunks = s->chunks;
    ix.kv = s->kv;
    ix.kv_len = strlen(s->kv);
    free(s->tail);
    s->tail = NULL;
    TRY(part_tail(&ix, MCK_ALIGN + s->stream_len, &s->tail, ret_len, err));
    s->file[to].bytes = s->stream_len;
    return ftruncate(s->fd[to], (off_t)file.file_len) == 0
               ? 0
               : merr_errno(err, -errno, "cannot end '%s'", s->file[to].path);
}

/* All tiles are written: the rest of the file. Lock held. */
static int end_file(struct tiles *s, struct merr *err)
{
    const uint64_t end = MCK_ALIGN + s->stream_len;
    uint32_t len = 0, n;
    int to = other(s);

    s->ending = true;
    TRY(make_tail(s, &len, err));
    TRY(start(s, MIO_WRITE, to, NULL, s->tail, MCK_ALIGN, 0, err));
    for (uint32_t at = 0; at < len; at += n) {
        n = len - at < MCK_SLOT ? len - at : MCK_SLOT;
        TRY(start(s, MIO_WRITE, to, NULL, (char *)s->tail + MCK_ALIGN + at, n, end + at, err));
    }
    return 0;
}

/* Sealed and durable. Lock held. */
static void sealed(struct tiles *s)
{
    s->newest = other(s);
    s->sealing = s->ending = s->syncing = s->opened = false;
    (void)pthread_cond_broadcast(&s->changed);
}

static struct tile *given_tile(struct tiles *s)
{
    for (int i = 0; i < TILES_AT_ONCE; i++)
        if (s->tile[i].state == TILE_GIVEN)
            return &s->tile[i];
    return NULL;
}

/* What can be begun now. Lock held, dropped meanwhile. */
static int begin_work(struct tiles *s, struct merr *err)
{
    struct tile *t;

    while ((t = given_tile(s)))
        TRY(write_tile(s, t, err));
    if (s->sealing && !s->ending && s->io_left == 0)
        TRY(end_file(s, err));
    else if (s->ending && !s->syncing && s->io_left == 0) {
        s->syncing = true;
        TRY(start(s, MIO_SYNC, other(s), NULL, NULL, 0, 0, err));
    } else if (s->syncing && s->io_left == 0) {
        sealed(s);
    }
    while (s->active && !s->sealing && s->next_read < s->tiles) {
        t = &s->tile[s->next_read % TILES_AT_ONCE];
        if (t->state != TILE_EMPTY)
            break;
        t->number = s->next_read++;
        TRY(read_tile(s, t, err));
        (void)pthread_cond_broadcast(&s->changed);
    }
    return 0;
}

/* Lock held, dropped meanwhile. */
static int finish(struct tiles *s, struct transfer *x, struct merr *err)
{
    struct tile *t = x->tile;
    int r = x->req.res;
    bool reads = x->req.op == MIO_READ;

    free(x);
    s->io_left--;
    if (t)
        t->left--;
    if (r < 0)
        return merr_errno(err, r, "cannot %s '%s'", reads ? "read" : "write",
                          s->file[reads ? s->newest : other(s)].path);
    if (!t || t->left > 0)
        return 0;
    if (t->state == TILE_READING) {
        s->works = true;
        unlock(s);
        r = check_tile(s, t, err);
        lock(s);
        s->works = false;
        t->state = r == 0 ? TILE_READ : TILE_EMPTY;
    } else {
        t->state = TILE_EMPTY;
    }
    (void)pthread_cond_broadcast(&s->changed);
    return r;
}

static void *run(void *arg)
{
    struct tiles *s = arg;
    struct pollfd p[2] = {{.fd = mio_fd(s->mio), .events = POLLIN}, {.fd = s->event, .events = POLLIN}};
    struct merr why = {""};
    struct mio_req *q;
    uint64_t count;
    int r;

    lock(s);
    while (!s->stop || s->io_left > 0) {
        r = s->code == 0 && !s->stop ? begin_work(s, &why) : 0;
        if (r < 0)
            fail(s, r, &why);
        unlock(s);
        if (poll(p, 2, LOOK_MS) > 0 && p[1].revents)
            (void)!read(s->event, &count, sizeof(count));
        lock(s);
        while ((q = mio_take(s->mio))) {
            r = finish(s, (struct transfer *)q, &why);
            if (r < 0)
                fail(s, r, &why);
        }
        (void)pthread_cond_broadcast(&s->changed);
    }
    unlock(s);
    return NULL;
}

/* --- from open to close ------------------------------------------------------------------------------------ */

static int make_memory(struct tiles *s, struct merr *err)
{
    s->pool_bytes = (s->tiles < TILES_AT_ONCE ? s->tiles : TILES_AT_ONCE) * TILES_PLANES * s->cfg.tile_bytes;
    s->pool = mmap(NULL, s->pool_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (s->pool == MAP_FAILED) {
        s->pool = NULL;
        return merr_set(err, -ENOMEM, "no memory for tiles of %zu MiB", s->pool_bytes >> 20);
    }
    (void)madvise(s->pool, s->pool_bytes, MADV_HUGEPAGE);
    (void)madvise(s->pool, s->pool_bytes, MADV_DONTFORK);
    memset(s->pool, 0, s->pool_bytes);
    for (int i = 0; i < FILES; i++) {
        s->chunk[i] = calloc(s->chunks, sizeof(*s->chunk[i]));
        if (!s->chunk[i])
            return merr_set(err, -ENOMEM, "no memory for the checksums of %u chunks", s->chunks);
    }
    return 0;
}

static int set_up(struct tiles *s, const struct tiles_cfg *cfg, struct merr *err)
{
    s->cfg = *cfg;
    s->cfg.dir = strdup(cfg->dir);
    s->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (!s->cfg.dir || s->event < 0)
        return merr_set(err, -ENOMEM, "no memory or file descriptor for the optimizer's files");
    s->stream_len = TILES_PLANES * cfg->plane_bytes;
    s->tiles = (size_t)((cfg->plane_bytes + cfg->tile_bytes - 1) / cfg->tile_bytes);
    s->chunks = (uint32_t)(s->stream_len / MCK_CHUNK);
    TRY(plan_index_at(cfg->buf, cfg->n, (uint32_t)cfg->rank, cfg->base, s->stream_len, &s->index, err));
    TRY(folder_make(s->cfg.dir, err));
    TRY(make_memory(s, err));
    TRY(mio_open(NULL, s->pool, s->pool_bytes, &s->mio, err));
    for (int i = 0; i < FILES; i++) {
        TRY(file_path(s->cfg.dir, cfg->rank, i, "", s->file[i].path, err));
        TRY(make_file(s, i, err));
    }
    if (pthread_create(&s->thread, NULL, run, s) != 0)
        return merr_set(err, -EAGAIN, "cannot start the thread of the optimizer's files");
    s->started = true;
    return 0;
}

int tiles_open(const struct tiles_cfg *cfg, struct tiles **ret, struct merr *err)
{
    struct tiles *s;
    int r;

    if (cfg->plane_bytes == 0 || cfg->plane_bytes % MCK_CHUNK || cfg->tile_bytes == 0 || cfg->tile_bytes % MCK_CHUNK ||
        cfg->tile_bytes > (1u << 30) || cfg->plane_bytes > (uint64_t)UINT32_MAX / TILES_PLANES * MCK_CHUNK)
        return merr_set(err, -EINVAL, "planes of %llu bytes in tiles of %zu are none",
                        (unsigned long long)cfg->plane_bytes, cfg->tile_bytes);
    s = calloc(1, sizeof(*s));
    if (!s)
        return merr_set(err, -ENOMEM, "no memory for the optimizer's files");
    (void)pthread_mutex_init(&s->lock, NULL);
    (void)pthread_cond_init(&s->changed, NULL);
    s->fd[0] = s->fd[1] = s->event = s->newest = -1;
    r = set_up(s, cfg, err);
    if (r < 0)
        tiles_close(s);
    else
        *ret = s;
    return r;
}

void tiles_close(struct tiles *s)
{
    if (!s)
        return;
    if (s->started) {
        lock(s);
        while (s->sealing && s->code == 0)
            (void)pthread_cond_wait(&s->changed, &s->lock);
        s->stop = true;
        unlock(s);
        wake_thread(s);
        (void)pthread_join(s->thread, NULL);
    }
    mio_close(s->mio);
    if (s->pool)
        (void)munmap(s->pool, s->pool_bytes);
    for (int i = 0; i < FILES; i++) {
        io_close(&s->fd[i]);
        free(s->chunk[i]);
    }
    index_clear(&s->index);
    io_close(&s->event);
    (void)pthread_cond_destroy(&s->changed);
    (void)pthread_mutex_destroy(&s->lock);
    free(s->kv);
    free(s->tail);
    free((char *)s->cfg.dir);
    free(s);
}

size_t tiles_count(const struct tiles *s)
{
    return s->tiles;
}

/* --- a pass ------------------------------------------------------------------------------------------------ */

int tiles_begin(struct tiles *s, bool blank, struct merr *err)
{
    int r;

    lock(s);
    if (s->active) { /* given up */
        s->active = false;
        while ((s->io_left > 0 || s->works || given_tile(s)) && s->code == 0)
            (void)pthread_cond_wait(&s->changed, &s->lock);
        for (int i = 0; i < TILES_AT_ONCE; i++)
            s->tile[i].state = TILE_EMPTY;
    }
    r = failed(s, err);
    if (r == 0 && !blank && s->newest < 0 && !s->sealing)
        r = merr_set(err, -EINVAL, "there is no state in '%s'", s->cfg.dir);
    if (r == 0) {
        s->active = true;
        s->blank = blank;
        s->next_read = s->next_take = s->given = 0;
    }
    unlock(s);
    wake_thread(s);
    return r;
}

int tiles_take(struct tiles *s, size_t i, void *ret[TILES_PLANES], struct merr *err)
{
    struct tile *t = &s->tile[i % TILES_AT_ONCE];
    int r;

    lock(s);
    r = s->active && i == s->next_take && i < s->tiles ? 0 : merr_set(err, -EINVAL, "tile %zu is not the next one", i);
    while (r == 0 && s->code == 0 && !(t->state == TILE_READ && t->number == i))
        (void)pthread_cond_wait(&s->changed, &s->lock);
    if (r == 0)
        r = failed(s, err);
    if (r == 0) {
        t->state = TILE_TAKEN;
        s->next_take++;
        for (int p = 0; p < TILES_PLANES; p++)
            ret[p] = plane_of(s, t, p);
    }
    unlock(s);
    return r;
}

int tiles_give(struct tiles *s, size_t i, struct merr *err)
{
    struct tile *t = &s->tile[i % TILES_AT_ONCE];
    int r;

    lock(s);
    r = failed(s, err);
    if (r == 0 && (t->state != TILE_TAKEN || t->number != i))
        r = merr_set(err, -EINVAL, "tile %zu was not taken", i);
    if (r == 0) {
        t->state = TILE_GIVEN;
        s->given++;
    }
    unlock(s);
    wake_thread(s);
    return r;
}

int tiles_seal(struct tiles *s, uint64_t step, const json_t *kv, struct merr *err)
{
    char *text = json_is_object(kv) ? json_dumps(kv, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    int r;

    if (!text || strlen(text) > MCK_KV_MAX) {
        free(text);
        return merr_set(err, -EMSGSIZE, "the cursor of step %llu is none, or passes %u bytes", (unsigned long long)step,
                        MCK_KV_MAX);
    }
    lock(s);
    r = failed(s, err);
    if (r == 0 && (!s->active || s->given != s->tiles))
        r = merr_set(err, -EINVAL, "%zu of %zu tiles were given", s->given, s->tiles);
    if (r == 0) {
        free(s->kv);
        s->kv = text;
        text = NULL;
        s->step = step;
        s->sealing = true;
        s->active = false;
    }
    unlock(s);
    free(text);
    wake_thread(s);
    return r;
}

int tiles_wait(struct tiles *s, struct merr *err)
{
    int r;

    lock(s);
    while (s->sealing && s->code == 0)
        (void)pthread_cond_wait(&s->changed, &s->lock);
    r = failed(s, err);
    unlock(s);
    return r;
}

int tiles_save(struct tiles *s, struct mck_file_of *ret, struct merr *err)
{
    char ending[32];
    int file;

    TRY(tiles_wait(s, err));
    file = s->newest;
    if (file < 0)
        return merr_set(err, -EINVAL, "there is no state in '%s'", s->cfg.dir);
    *ret = s->file[file];
    (void)snprintf(ending, sizeof(ending), ".%llu.tmp", (unsigned long long)s->step);
    TRY(file_path(s->cfg.dir, s->cfg.rank, file, ending, ret->path, err));
    (void)unlink(ret->path);
    if (link(s->file[file].path, ret->path) != 0)
        return merr_errno(err, -errno, "cannot link '%s'", s->file[file].path);
    return 0;
}

/* --- what an earlier generation left ----------------------------------------------------------------------- */

/* The file of a rank that belongs to an attempt. */
static bool find_file(const char *dir, int rank, const uint8_t uuid[16], char out[MCK_PATH_MAX])
{
    for (int i = 0; i < FILES; i++)
        if (file_path(dir, rank, i, "", out, NULL) == 0 && part_check(out, uuid, (uint32_t)rank, 0, NULL) == 0)
            return true;
    return false;
}

/* Link the files of all ranks into a step's folder. 1, 0: a rank has none. */
static int link_all(const char *dir, const char *folder, const struct mck_index *ix, struct merr *err)
{
    char from[MCK_PATH_MAX], to[MCK_PATH_MAX], name[32];

    for (int rank = 0; rank < (int)ix->writers; rank++)
        if (!find_file(dir, rank, ix->uuid, from))
            return 0;
    if (mkdir(folder, 0755) != 0 && errno != EEXIST)
        return merr_errno(err, -errno, "cannot make '%s'", folder);
    for (int rank = 0; rank < (int)ix->writers; rank++) {
        (void)snprintf(name, sizeof(name), "rank-%05d.mck", rank);
        TRY(folder_join(folder, name, to, err));
        (void)unlink(to); /* of an attempt that was not committed */
        if (!find_file(dir, rank, ix->uuid, from) || link(from, to) != 0)
            return merr_errno(err, -errno, "cannot link '%s'", from);
    }
    TRY(io_sync_dir(folder, err));
    return 1;
}

static int commit_one(const char *dir, const char *checkpoints, uint64_t generation, const struct mck_index *ix,
                      uint64_t *ret_step, struct merr *err)
{
    char folder[MCK_PATH_MAX];
    struct coordinate c = {.dir = checkpoints,
                           .folder = folder,
                           .generation = generation,
                           .step = ix->step,
                           .uuid = ix->uuid,
                           .writers = ix->writers,
                           .stop_fd = -1,
                           .deadline_us = clock_mono_us() + COMMIT_US};
    uint64_t newest;
    int r;

    if (mck_latest(checkpoints, &newest, NULL, err) == 1 && newest >= ix->step)
        return 0;
    TRY(folder_make(checkpoints, err));
    TRY(folder_raise_generation(checkpoints, generation, err));
    TRY(folder_step_path(checkpoints, ix->step, NULL, folder, err));
    r = link_all(dir, folder, ix, err);
    if (r <= 0)
        return r;
    TRY(coordinate_commit(&c, err));
    *ret_step = ix->step;
    return 0;
}

int tiles_commit(const char *dir, const char *checkpoints, uint64_t generation, uint64_t *ret_step, struct merr *err)
{
    struct mck_index ix[FILES];
    bool there[FILES];
    int first, r = 0;

    *ret_step = 0;
    for (int i = 0; i < FILES; i++) {
        char path[MCK_PATH_MAX];

        TRY(file_path(dir, 0, i, "", path, err));
        there[i] = part_read(path, &ix[i], NULL) == 0;
    }
    first = there[0] && there[1] && ix[0].step > ix[1].step ? 1 : 0; /* the older one, to fall back to */
    for (int i = 0; i < FILES; i++) {
        int k = (first + i) % FILES;

        if (there[k] && r == 0)
            r = commit_one(dir, checkpoints, generation, &ix[k], ret_step, err);
        if (there[k])
            index_clear(&ix[k]);
    }
    return r;
}

void tiles_clear(const char *dir)
{
    DIR *d = opendir(dir);
    char path[MCK_PATH_MAX];
    struct dirent *e;

    while (d && (e = readdir(d)))
        if (strncmp(e->d_name, "rank-", 5) == 0 && folder_join(dir, e->d_name, path, NULL) == 0)
            (void)unlink(path);
    if (d)
        (void)closedir(d);
}
