#include "api/cli/family.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/io.h"
#include "base/try.h"

static bool look_up(const char *proc, pid_t pid, struct process *ret)
{
    char path[512], state, *end;
    struct buf b;
    bool ok = false;

    (void)snprintf(path, sizeof(path), "%s/%d/stat", proc, (int)pid);
    buf_init(&b, 4096);
    if (io_read_file(path, &b, NULL) == 0 && (end = strrchr(buf_text(&b), ')'))) {
        int parent;
        unsigned long long start;

        if (sscanf(end + 2, "%c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu", &state,
                   &parent, &start) == 3 &&
            state != 'Z' && state != 'X') {
            *ret = (struct process){.pid = pid, .parent = parent, .start = start};
            ok = true;
        }
    }
    buf_clear(&b);
    return ok;
}

bool family_look_up(pid_t pid, struct process *ret)
{
    return look_up("/proc", pid, ret);
}

bool family_alive(const struct process *p)
{
    struct process now;

    return family_look_up(p->pid, &now) && now.start == p->start;
}

void family_clear(struct family *f)
{
    free(f->v);
    *f = (struct family){.n = 0};
}

/* One more; its room doubles. */
static int add(struct family *f, const struct process *p)
{
    if ((f->n & (f->n - 1)) == 0) {
        struct process *v = f->n < FAMILY_MAX ? realloc(f->v, (f->n ? f->n * 2 : 1) * sizeof(*v)) : NULL;

        if (!v)
            return -ENOMEM;
        f->v = v;
    }
    f->v[f->n++] = *p;
    return 0;
}

/* All processes there are. 0 or a negative errno. */
static int read_all(const char *proc, struct family *ret)
{
    DIR *d = opendir(proc);
    struct dirent *e;
    int r = d ? 0 : -errno;

    while (r == 0 && (e = readdir(d))) {
        long pid = e->d_name[0] >= '1' && e->d_name[0] <= '9' ? strtol(e->d_name, NULL, 10) : 0;
        struct process p;

        if (pid > 0 && pid < FAMILY_MAX && look_up(proc, (pid_t)pid, &p))
            r = add(ret, &p);
    }
    if (d)
        (void)closedir(d);
    return r;
}

static bool is_in(const unsigned char *set, pid_t pid)
{
    return pid > 0 && pid < FAMILY_MAX && (set[pid / 8] >> pid % 8 & 1);
}

/* Add to f, whose members are in set, all that descend from them. */
static int add_descendants(const struct family *all, unsigned char *set, struct family *f)
{
    size_t before;
    int r = 0;

    do {
        before = f->n;
        for (size_t i = 0; r == 0 && i < all->n; i++) {
            pid_t pid = all->v[i].pid;

            if (!is_in(set, all->v[i].parent) || is_in(set, pid))
                continue;
            set[pid / 8] = (unsigned char)(set[pid / 8] | 1 << pid % 8);
            r = add(f, &all->v[i]);
        }
    } while (r == 0 && f->n > before);
    return r;
}

static int gather(const char *proc, const struct process *first, size_t n, unsigned char *set, struct family *all,
                  struct family *f)
{
    TRY(read_all(proc, all));
    for (size_t i = 0; i < n; i++) {
        if (first[i].pid > 0 && first[i].pid < FAMILY_MAX)
            set[first[i].pid / 8] = (unsigned char)(set[first[i].pid / 8] | 1 << first[i].pid % 8);
        TRY(add(f, &first[i]));
    }
    return add_descendants(all, set, f);
}

int family_gather(const char *proc, const struct process *first, size_t n, struct family *ret, struct merr *err)
{
    unsigned char *set = calloc(FAMILY_MAX / 8, 1);
    struct family all = {.n = 0}, f = {.n = 0};
    int r = set ? gather(proc, first, n, set, &all, &f) : -ENOMEM;

    family_clear(&all);
    free(set);
    if (r < 0) {
        family_clear(&f);
        return merr_errno(err, r, "cannot look at the machine's processes in '%s'", proc);
    }
    *ret = f;
    return 0;
}
