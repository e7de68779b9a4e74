#include "server/store/node_series.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/io.h"

#define MAGIC 0x31736572656e6f64ull
#define END ".series"
#define DAY_S 86400
#define LOOK_S 60   /* between two looks for a file that may go, once there was none */
#define TOGETHER 64 /* samples that are read at once */

struct node_series {
    char folder[4000];
    int64_t limit, bytes; /* of all files */
    int64_t full_s;       /* when no file was found that may go */
};

struct head {
    uint64_t magic;
    uint32_t devices; /* that a sample has room for */
    uint32_t host;
};

struct row {      /* of a ring; its devices follow */
    uint32_t crc; /* of the rest */
    uint32_t n_devices;
    int64_t tick;
    uint32_t host[NODE_SERIES_HOST];
    uint32_t unused;
};

struct ring {
    int step_s;
    int64_t n, first; /* rows; the rows before them in the file */
};

static const struct ring fine = {NODE_SERIES_FINE_S, NODE_SERIES_FINE, 0};
static const struct ring coarse = {NODE_SERIES_COARSE_S, NODE_SERIES_COARSE, NODE_SERIES_FINE};

static size_t row_bytes(const struct head *h)
{
    return sizeof(struct row) + h->devices * sizeof(struct node_series_device);
}

static int64_t file_bytes(const struct head *h)
{
    return (int64_t)sizeof(*h) + (int64_t)row_bytes(h) * (NODE_SERIES_FINE + NODE_SERIES_COARSE);
}

static off_t place(const struct head *h, const struct ring *r, int64_t tick)
{
    return (off_t)sizeof(*h) + (off_t)row_bytes(h) * (r->first + tick % r->n);
}

static bool path_of(const struct node_series *s, const char *node, char ret[PATH_MAX])
{
    return node[0] && node[0] != '.' && !strchr(node, '/') &&
           snprintf(ret, PATH_MAX, "%s/%s" END, s->folder, node) < PATH_MAX;
}

/* --- the folder -------------------------------------------------------------------------------------- */

/* Bytes of all files; the name of the one that was written longest ago, and when. */
static int64_t survey(const struct node_series *s, char ret_oldest[NAME_MAX + 1], int64_t *ret_wrote_s)
{
    DIR *dir = opendir(s->folder);
    int64_t sum = 0;
    struct stat st;

    *ret_wrote_s = INT64_MAX;
    for (struct dirent *e = dir ? readdir(dir) : NULL; e; e = readdir(dir)) {
        const char *end = strrchr(e->d_name, '.');

        if (!end || strcmp(end, END) != 0 || fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        sum += st.st_size;
        if (st.st_mtime < *ret_wrote_s) {
            *ret_wrote_s = st.st_mtime;
            (void)snprintf(ret_oldest, NAME_MAX + 1, "%s", e->d_name);
        }
    }
    if (dir)
        (void)closedir(dir);
    return sum;
}

int node_series_open(const char *folder, int64_t limit, struct node_series **ret, struct merr *err)
{
    struct node_series *s = calloc(1, sizeof(*s));
    char oldest[NAME_MAX + 1];
    int64_t wrote_s;
    int r = s ? 0 : merr_set(err, -ENOMEM, "out of memory");

    if (r == 0 && (size_t)snprintf(s->folder, sizeof(s->folder), "%s", folder) >= sizeof(s->folder))
        r = merr_set(err, -ENAMETOOLONG, "'%s' is too long a path", folder);
    r = r == 0 ? io_mkdirs(folder, 0700, err) : r;
    if (r < 0) {
        free(s);
        return r;
    }
    s->limit = limit;
    s->full_s = INT64_MIN / 2;
    s->bytes = survey(s, oldest, &wrote_s);
    *ret = s;
    return 0;
}

void node_series_close(struct node_series *s)
{
    free(s);
}

/* Room for so many bytes more. 0 or -ENOSPC. */
static int make_room(struct node_series *s, int64_t bytes, int64_t now_s)
{
    while (s->bytes + bytes > s->limit) {
        char oldest[NAME_MAX + 1], path[PATH_MAX];
        int64_t wrote_s, sum;

        if (now_s >= s->full_s && now_s < s->full_s + LOOK_S)
            return -ENOSPC; /* each node without a file asks again with each sample */
        sum = survey(s, oldest, &wrote_s);

        if (sum + bytes > s->limit &&
            (wrote_s > now_s - DAY_S || snprintf(path, sizeof(path), "%s/%s", s->folder, oldest) >= (int)sizeof(path) ||
             unlink(path) < 0)) {
            s->full_s = now_s;
            return -ENOSPC;
        }
        s->bytes = sum + bytes > s->limit ? survey(s, oldest, &wrote_s) : sum;
    }
    return 0;
}

/* --- a file ------------------------------------------------------------------------------------------ */

/* Open it with its header. The descriptor or a negative errno; -ENOENT: there is none that can be read. */
static int open_file(const char *path, int flags, struct head *ret)
{
    int fd = open(path, flags | O_CLOEXEC | O_NOFOLLOW);

    if (fd < 0)
        return -errno;
    if (pread(fd, ret, sizeof(*ret), 0) == (ssize_t)sizeof(*ret) && ret->magic == MAGIC &&
        ret->host == NODE_SERIES_HOST && ret->devices <= NODE_SERIES_DEVICES_MAX)
        return fd;
    (void)close(fd);
    return -ENOENT;
}

static uint32_t crc_of(const struct row *row)
{
    return hash_crc32c(0, (const char *)row + sizeof(row->crc),
                       sizeof(*row) - sizeof(row->crc) + row->n_devices * sizeof(struct node_series_device));
}

/* Whether bytes of a file are the row of that time; it goes to *ret. */
static bool unpack(const struct head *h, const struct ring *r, const void *bytes, int64_t tick,
                   struct node_series_sample *ret)
{
    const struct row *row = bytes;

    if (row->tick != tick || row->n_devices > h->devices || row->crc != crc_of(row))
        return false;
    ret->at_s = tick * r->step_s;
    memcpy(ret->host, row->host, sizeof(ret->host));
    ret->n_devices = row->n_devices;
    memcpy(ret->device, row + 1, row->n_devices * sizeof(ret->device[0]));
    return true;
}

static int write_row(int fd, const struct head *h, const struct ring *r, const struct node_series_sample *x)
{
    union {
        struct row row;
        char bytes[sizeof(struct row) + NODE_SERIES_DEVICES_MAX * sizeof(struct node_series_device)];
    } u;
    size_t len = sizeof(u.row) + x->n_devices * sizeof(x->device[0]);

    u.row = (struct row){.n_devices = (uint32_t)x->n_devices, .tick = x->at_s / r->step_s};
    memcpy(u.row.host, x->host, sizeof(x->host));
    memcpy(u.bytes + sizeof(u.row), x->device, x->n_devices * sizeof(x->device[0]));
    u.row.crc = crc_of(&u.row);
    return pwrite(fd, u.bytes, len, place(h, r, u.row.tick)) == (ssize_t)len ? 0 : -EIO;
}

/* Tell of the rows of a time. 0 or a negative errno. */
static int each_row(int fd, const struct head *h, const struct ring *r, int64_t first, int64_t last, node_series_fn *fn,
                    void *arg)
{
    struct node_series_sample *x = malloc(sizeof(*x));
    char *bytes = malloc(row_bytes(h) * TOGETHER);
    int code = x && bytes ? 0 : -ENOMEM;

    first = last - first >= r->n ? last - r->n + 1 : first;
    while (code == 0 && first <= last) {
        int64_t n = r->n - first % r->n; /* up to where the ring ends */
        ssize_t got;

        n = n > TOGETHER ? TOGETHER : n;
        n = n > last - first + 1 ? last - first + 1 : n;
        got = pread(fd, bytes, row_bytes(h) * (size_t)n, place(h, r, first));
        code = got < 0 ? -errno : 0;
        for (int64_t i = 0; i < n && (i + 1) * (int64_t)row_bytes(h) <= got; i++)
            if (unpack(h, r, bytes + (size_t)i * row_bytes(h), first + i, x))
                fn(arg, x);
        first += n;
    }
    free(bytes);
    free(x);
    return code;
}

struct copy {
    int fd;
    const struct head *h;
    const struct ring *r;
};

static void copy_row(void *arg, const struct node_series_sample *x)
{
    const struct copy *c = arg;

    (void)write_row(c->fd, c->h, c->r, x);
}

/* A file with room for so many devices, and what the one before has, if there is one. The descriptor or a negative
 * errno. */
static int make_file(struct node_series *s, const char *path, size_t devices, int64_t now_s, struct head *ret)
{
    struct head old, h = {.magic = MAGIC, .devices = (uint32_t)devices, .host = NODE_SERIES_HOST};
    IO_CLOSE_AUTO int from = open_file(path, O_RDONLY, &old);
    char beside[PATH_MAX + 8];
    struct stat st;
    int64_t was = stat(path, &st) == 0 ? st.st_size : 0;
    int fd, r = make_room(s, file_bytes(&h) - was, now_s);

    if (r < 0)
        return r;
    (void)snprintf(beside, sizeof(beside), "%s.new", path);
    (void)unlink(beside);
    fd = open(beside, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    r = fd < 0 || ftruncate(fd, file_bytes(&h)) < 0 || pwrite(fd, &h, sizeof(h), 0) != (ssize_t)sizeof(h) ? -errno : 0;
    for (int k = 0; k < 2 && r == 0 && from >= 0; k++) {
        const struct ring *ring = k ? &coarse : &fine;
        int64_t last = now_s / ring->step_s;

        r = each_row(from, &old, ring, last - ring->n + 1, last, copy_row, &(struct copy){fd, &h, ring});
    }
    if (r == 0 && rename(beside, path) < 0)
        r = -errno;
    if (r < 0) {
        (void)unlink(beside);
        if (fd >= 0)
            (void)close(fd);
        return r;
    }
    s->bytes += file_bytes(&h) - was;
    *ret = h;
    return fd;
}

/* --- means ------------------------------------------------------------------------------------------- */

struct mean {
    struct node_series_sample x; /* the newest, and then the means */
    int64_t sum[NODE_SERIES_HOST], n[NODE_SERIES_HOST];
    struct {
        int32_t use, n_use, busy, n, power, n_power, memory, n_memory, temperature, n_temperature;
        uint32_t job;
    } of[NODE_SERIES_DEVICES_MAX];
};

static void add_byte(uint8_t v, int32_t *sum, int32_t *n)
{
    *sum += v == NODE_SERIES_BYTE_NONE ? 0 : v;
    *n += v != NODE_SERIES_BYTE_NONE;
}

static void add_sample(void *arg, const struct node_series_sample *x)
{
    struct mean *m = arg;

    m->x = *x;
    for (int i = 0; i < NODE_SERIES_HOST; i++) {
        m->sum[i] += x->host[i] == NODE_SERIES_NONE ? 0 : x->host[i];
        m->n[i] += x->host[i] != NODE_SERIES_NONE;
    }
    for (size_t i = 0; i < x->n_devices; i++) {
        const struct node_series_device *d = &x->device[i];

        m->of[i].job = d->job ? d->job : m->of[i].job;
        m->of[i].power += d->power_w == NODE_SERIES_WATT_NONE ? 0 : d->power_w;
        m->of[i].n_power += d->power_w != NODE_SERIES_WATT_NONE;
        add_byte(d->busy, &m->of[i].busy, &m->of[i].n);
        add_byte(d->use, &m->of[i].use, &m->of[i].n_use);
        add_byte(d->memory, &m->of[i].memory, &m->of[i].n_memory);
        add_byte(d->temperature, &m->of[i].temperature, &m->of[i].n_temperature);
    }
}

static uint8_t mean_byte(int32_t sum, int32_t n)
{
    return n > 0 ? (uint8_t)((sum + n / 2) / n) : NODE_SERIES_BYTE_NONE;
}

/* The means of the five minutes that a sample is in, so far. */
static int write_mean(int fd, const struct head *h, int64_t at_s)
{
    int64_t begin_s = at_s - at_s % NODE_SERIES_COARSE_S;
    struct mean *m = calloc(1, sizeof(*m));
    int r = m ? each_row(fd, h, &fine, begin_s / NODE_SERIES_FINE_S,
                         (begin_s + NODE_SERIES_COARSE_S) / NODE_SERIES_FINE_S - 1, add_sample, m)
              : -ENOMEM;

    for (int i = 0; r == 0 && i < NODE_SERIES_HOST; i++)
        m->x.host[i] = m->n[i] > 0 ? (uint32_t)(m->sum[i] / m->n[i]) : NODE_SERIES_NONE;
    for (size_t i = 0; r == 0 && i < m->x.n_devices; i++)
        m->x.device[i] = (struct node_series_device){
            .job = m->of[i].job,
            .slot = m->x.device[i].slot,
            .power_w = m->of[i].n_power > 0 ? (uint16_t)(m->of[i].power / m->of[i].n_power) : NODE_SERIES_WATT_NONE,
            .busy = mean_byte(m->of[i].busy, m->of[i].n),
            .use = mean_byte(m->of[i].use, m->of[i].n_use),
            .memory = mean_byte(m->of[i].memory, m->of[i].n_memory),
            .temperature = mean_byte(m->of[i].temperature, m->of[i].n_temperature)};
    if (r == 0) {
        m->x.at_s = begin_s;
        r = write_row(fd, h, &coarse, &m->x);
    }
    free(m);
    return r;
}

int node_series_put(struct node_series *s, const char *node, const struct node_series_sample *sample)
{
    char path[PATH_MAX];
    struct head h;
    int fd, r;

    if (!path_of(s, node, path) || sample->n_devices > NODE_SERIES_DEVICES_MAX || sample->at_s < 0)
        return -EINVAL;
    fd = open_file(path, O_RDWR, &h);
    if (fd >= 0 && h.devices < sample->n_devices) {
        (void)close(fd);
        fd = -ENOENT;
    }
    if (fd == -ENOENT)
        fd = make_file(s, path, (sample->n_devices + 3) / 4 * 4, sample->at_s, &h);
    if (fd < 0)
        return fd;
    r = write_row(fd, &h, &fine, sample);
    r = r == 0 ? write_mean(fd, &h, sample->at_s) : r;
    (void)close(fd);
    return r;
}

int node_series_read(const struct node_series *s, const char *node, int64_t from_s, int64_t to_s, int step_s,
                     node_series_fn *fn, void *arg)
{
    const struct ring *r = step_s == NODE_SERIES_FINE_S ? &fine : &coarse;
    char path[PATH_MAX];
    struct head h;

    if (!path_of(s, node, path))
        return -EINVAL;
    IO_CLOSE_AUTO int fd = open_file(path, O_RDONLY, &h);

    if (fd < 0)
        return fd;
    from_s = from_s < 0 ? 0 : from_s;
    return to_s < from_s ? 0 : each_row(fd, &h, r, from_s / r->step_s, to_s / r->step_s, fn, arg);
}
