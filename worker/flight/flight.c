#include "worker/flight/flight.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/try.h"
#include "worker/flight/flight_priv.h"

#define FLIGHT_MAGIC 0x746867696c66736dULL /* "msflight" */
#define FLIGHT_VERSION 6
#define GAP_WARM_STEPS 3 /* of a run: their gaps are no measure of later ones */
#define GAP_STEPS 100
#define FADES 1024 /* of phases */

static int handle_new(struct page *page, struct flight **ret, struct merr *err)
{
    struct flight *f = calloc(1, sizeof(*f));

    if (!f) {
        (void)munmap(page, sizeof(*page));
        return merr_set(err, -ENOMEM, "no memory for a flight page's handle");
    }
    *f = (struct flight){.page = page, .fd = -1, .first_step = UINT64_MAX, .step_ops_n = UINT64_MAX};
    *ret = f;
    return 0;
}

static struct page *map(int fd)
{
    void *p = mmap(NULL, sizeof(struct page), PROT_READ | PROT_WRITE, fd < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED,
                   fd, 0);

    return p == MAP_FAILED ? NULL : p;
}

static void page_init(struct page *p)
{
    p->magic = FLIGHT_MAGIC;
    p->version = FLIGHT_VERSION;
    atomic_store(&p->phase, (uint64_t)clock_mono_us() << 8 | FLIGHT_INIT);
}

/* Made under another name and linked into place, so that no watcher ever sees half a page. */
int flight_create(const char *path, struct flight **ret, struct merr *err)
{
    IO_CLOSE_AUTO int fd = -1;
    char temp[PATH_MAX];
    struct page *page = NULL;
    int r = 0;

    if ((size_t)snprintf(temp, sizeof(temp), "%s.XXXXXX", path) >= sizeof(temp))
        return merr_set(err, -ENAMETOOLONG, "path too long: '%s'", path);
    fd = mkostemp(temp, O_CLOEXEC);
    if (fd < 0)
        return merr_errno(err, -errno, "cannot create '%s'", temp);
    r = -posix_fallocate(fd, 0, sizeof(struct page)); /* a full disk is an error here, not a SIGBUS later */
    if (r == 0 && !(page = map(fd)))
        r = -errno;
    if (r == 0) {
        page_init(page);
        if (link(temp, path) < 0)
            r = -errno;
    }
    (void)unlink(temp);
    if (r == 0 && ret)
        return handle_new(page, ret, err);
    if (page)
        (void)munmap(page, sizeof(*page));
    return r == 0 ? 0 : merr_errno(err, r, "cannot make the flight page '%s'", path);
}

static int check_size(int fd, const char *path, struct merr *err)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return merr_errno(err, -errno, "cannot look at the flight page '%s'", path);
    return S_ISREG(st.st_mode) && st.st_size == (off_t)sizeof(struct page)
               ? 0
               : merr_set(err, -EPROTO, "'%s' is no flight page: %lld bytes, not %zu", path, (long long)st.st_size,
                          sizeof(struct page));
}

static int check_version(const struct page *page, const char *path, struct merr *err)
{
    return page->magic == FLIGHT_MAGIC && page->version == FLIGHT_VERSION
               ? 0
               : merr_set(err, -EPROTO, "'%s' is no flight page of version %d", path, FLIGHT_VERSION);
}

int flight_open(const char *path, struct flight **ret, struct merr *err)
{
    IO_CLOSE_AUTO int fd = open(path, O_RDWR | O_CLOEXEC);
    struct page *page;
    int r;

    if (fd < 0)
        return merr_errno(err, -errno, "cannot open the flight page '%s'", path);
    TRY(check_size(fd, path, err));
    page = map(fd);
    if (!page)
        return merr_errno(err, -errno, "cannot map the flight page '%s'", path);
    r = check_version(page, path, err);
    if (r == 0)
        return handle_new(page, ret, err);
    (void)munmap(page, sizeof(*page));
    return r;
}

int flight_watch(const char *path, struct flight **ret, struct merr *err)
{
    struct flight *f;
    int fd = io_open_plain(path, O_RDWR), r;

    if (fd < 0)
        return merr_errno(err, fd, "cannot open the flight page '%s'", path);
    f = calloc(1, sizeof(*f));
    if (f)
        *f = (struct flight){.page = calloc(1, sizeof(*f->page)), .fd = fd};
    if (!f || !f->page) {
        (void)close(fd);
        free(f);
        return merr_set(err, -ENOMEM, "no memory to watch a flight page");
    }
    flight_look(f, f->page, sizeof(*f->page));
    r = check_size(fd, path, err);
    if (r == 0)
        r = check_version(f->page, path, err);
    if (r < 0)
        flight_close(f);
    else
        *ret = f;
    return r;
}

int flight_private(struct flight **ret, struct merr *err)
{
    struct page *page = map(-1);

    if (!page)
        return merr_errno(err, -errno, "cannot map a flight page");
    page_init(page);
    return handle_new(page, ret, err);
}

void flight_close(struct flight *f)
{
    int saved = errno;

    if (f) {
        free(f->step_ops[0]);
        free(f->step_ops[1]);
    }
    if (f && f->fd >= 0) {
        (void)close(f->fd);
        free(f->page);
    } else if (f) {
        (void)munmap(f->page, sizeof(*f->page));
    }
    free(f);
    errno = saved;
}

void flight_order_set(struct flight *f, enum flight_order order)
{
    uint32_t was, word = (uint32_t)order;

    FLIGHT_LOOK_HEAD(f);
    was = atomic_load(&f->page->order);
    if (f->fd >= 0) { /* orders differ in one byte: no rank sees half of one */
        if (was < word)
            (void)!pwrite(f->fd, &word, sizeof(word), offsetof(struct page, order));
        return;
    }
    while (was < (uint32_t)order && !atomic_compare_exchange_weak(&f->page->order, &was, (uint32_t)order))
        ;
}

void flight_trial_set(struct flight *f, uint32_t number)
{
    if (f->fd >= 0)
        (void)!pwrite(f->fd, &number, sizeof(number), offsetof(struct page, trial));
    else
        atomic_store(&f->page->trial, number);
}

void flight_stopped_set(struct flight *f, int64_t us)
{
    uint64_t word = (uint64_t)us;

    if (f->fd >= 0)
        (void)!pwrite(f->fd, &word, sizeof(word), offsetof(struct page, stopped_us));
    else
        atomic_store(&f->page->stopped_us, word);
}

enum flight_order flight_order_get(const struct flight *f)
{
    return (enum flight_order)atomic_load(&f->page->order);
}

uint32_t flight_trial_get(const struct flight *f)
{
    return atomic_load(&f->page->trial);
}

bool flight_aborted(const struct flight *f)
{
    return atomic_load_explicit(&f->page->order, memory_order_acquire) >= FLIGHT_ABORT;
}

void flight_saved(struct flight *f)
{
    uint32_t save = FLIGHT_SAVE;

    (void)atomic_compare_exchange_strong(&f->page->order, &save, FLIGHT_GO);
}

/* A sign of life. The gap before it is the rank's own where it was computing, not waiting. */
static int64_t sign(struct flight *f, bool computed)
{
    uint64_t step = atomic_load_explicit(&f->page->step, memory_order_relaxed);
    int64_t now = clock_mono_us(), gap = f->sign_us ? now - f->sign_us : 0;

    f->sign_us = now;
    if (!computed || f->first_step == UINT64_MAX || step < f->first_step + GAP_WARM_STEPS)
        return now;
    if (step / GAP_STEPS != f->window) {
        f->window = step / GAP_STEPS;
        f->gap_us[1] = f->gap_us[0];
        f->gap_us[0] = 0;
    }
    if ((uint64_t)gap > f->gap_us[0])
        f->gap_us[0] = (uint64_t)gap;
    atomic_store_explicit(&f->page->gap_us, f->gap_us[0] > f->gap_us[1] ? f->gap_us[0] : f->gap_us[1],
                          memory_order_relaxed);
    return now;
}

static bool computes(uint64_t phase)
{
    return (phase >= FLIGHT_FORWARD && phase <= FLIGHT_UPDATE) || phase == FLIGHT_PROGRAM;
}

static uint64_t phase_of(const struct flight *f)
{
    return atomic_load_explicit(&f->page->phase, memory_order_relaxed) & 255;
}

/* A phase is over that took so long. The longest is kept, and fades with each that was shorter. */
static void learn_phase(struct flight *f, enum flight_phase phase, int64_t us)
{
    int kind = flight_timed_of(phase);
    uint64_t step = atomic_load_explicit(&f->page->step, memory_order_relaxed), longest;

    if (kind < 0 || (phase == FLIGHT_DATA && step < f->first_step + GAP_WARM_STEPS))
        return;
    longest = atomic_load_explicit(&f->page->usual_us[kind], memory_order_relaxed);
    longest -= longest / FADES;
    atomic_store_explicit(&f->page->usual_us[kind], (uint64_t)us > longest ? (uint64_t)us : longest,
                          memory_order_relaxed);
}

void flight_allow(struct flight *f, int64_t us)
{
    atomic_store_explicit(&f->page->allowed_us, us > 0 ? (uint64_t)us : 0, memory_order_relaxed);
}

void flight_phase_set(struct flight *f, enum flight_phase phase, uint64_t step)
{
    uint64_t was = atomic_load_explicit(&f->page->phase, memory_order_relaxed);

    if (f->first_step == UINT64_MAX && computes(phase))
        f->first_step = step;
    flight_order_phase(f, phase, step);
    atomic_store(&f->page->step, step);
    atomic_store_explicit(&f->page->allowed_us, 0, memory_order_relaxed);
    atomic_store(&f->page->phase, (uint64_t)sign(f, computes(phase_of(f))) << 8 | (uint64_t)phase);
    learn_phase(f, (enum flight_phase)(was & 255), f->sign_us - (int64_t)(was >> 8));
}

void flight_moved(struct flight *f)
{
    f->sign_us = clock_mono_us();
    atomic_store_explicit(&f->page->moved_us, (uint64_t)f->sign_us, memory_order_relaxed);
}

/* The group's words; NULL: the table is full. */
static _Atomic uint64_t *group_of(struct page *p, const struct flight_call *call)
{
    uint64_t name[2] = {0};
    int i = 0;

    for (; i < FLIGHT_GROUPS; i++) {
        uint64_t key = atomic_load_explicit(&p->group[i][GROUP_KEY], memory_order_relaxed);

        if (key == call->key && call->size > 0)
            atomic_store_explicit(&p->group[i][GROUP_SIZE], (uint64_t)call->size, memory_order_relaxed);
        if (key == call->key)
            return p->group[i];
        if (key == 0)
            break;
    }
    if (i == FLIGHT_GROUPS)
        return NULL;
    memcpy(name, call->group, strnlen(call->group, sizeof(name) - 1));
    for (size_t k = 0; k < 2; k++)
        atomic_store_explicit(&p->group[i][GROUP_NAME + k], name[k], memory_order_relaxed);
    atomic_store_explicit(&p->group[i][GROUP_SIZE], (uint64_t)call->size, memory_order_relaxed);
    atomic_store(&p->group[i][GROUP_KEY], call->key);
    return p->group[i];
}

static enum flight_kind kind_of(const char *group)
{
    static const struct {
        const char *name;
        enum flight_kind kind;
    } of[] = {{"tp", FLIGHT_TP},   {"kv", FLIGHT_TP}, {"pp", FLIGHT_PP},
              {"pair", FLIGHT_PP}, {"dp", FLIGHT_DP}, {"cp", FLIGHT_CP}};

    for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++)
        if (strcmp(group, of[i].name) == 0)
            return of[i].kind;
    return FLIGHT_WORLD;
}

void flight_enter(struct flight *f, const struct flight_call *call)
{
    uint64_t i = atomic_load_explicit(&f->page->entered, memory_order_relaxed), word[OP_WORDS];
    _Atomic uint64_t *slot = f->page->ring[i % FLIGHT_RING], *group = group_of(f->page, call);
    struct flight_op o = {.version = 2 * i + 2,
                          .seq = call->seq,
                          .bytes = call->bytes,
                          .enter_us = sign(f, computes(phase_of(f))),
                          .op = call->op,
                          .step = (uint32_t)atomic_load_explicit(&f->page->step, memory_order_relaxed),
                          .key = call->key,
                          .peer = call->peer};

    memcpy(word, &o, sizeof(o));
    /* A reader who sees any new word below sees this odd version too: each is stored with release, and read with
     * acquire before the version is read again. */
    atomic_store(&slot[WORD_VERSION], 2 * i + 1);
    for (size_t k = 1; k < OP_WORDS; k++)
        atomic_store_explicit(&slot[k], word[k], memory_order_release);
    atomic_store(&slot[WORD_VERSION], o.version);
    if (group && call->peer < 0) {
        atomic_store_explicit(&group[GROUP_DIGEST], call->digest, memory_order_relaxed);
        atomic_store_explicit(&group[GROUP_CALL], call->bytes << 8 | (call->op & 255), memory_order_relaxed);
        atomic_store_explicit(&group[GROUP_ENTERED], call->seq, memory_order_release);
    }
    if (call->ordered)
        flight_order_add(f, call->digest);
    f->inside = call->peer < 0 ? group : NULL;
    f->kind = kind_of(call->group);
    f->enter_us = o.enter_us;
    atomic_store(&f->page->entered, i + 1);
    f->enter_cpu_us = clock_thread_us();
}

/* One word is stored at once, so the entry's version need not change. */
void flight_leave(struct flight *f)
{
    uint64_t n = atomic_load_explicit(&f->page->entered, memory_order_relaxed);
    int64_t now = sign(f, false);

    assert(n > 0);
    f->call_us[f->kind] += (uint64_t)(now - f->enter_us);
    f->calls_cpu_us += clock_thread_us() - f->enter_cpu_us;
    atomic_store(&f->page->ring[(n - 1) % FLIGHT_RING][WORD_LEAVE], (uint64_t)now);
    if (f->inside)
        atomic_store_explicit(&f->inside[GROUP_LEFT],
                              atomic_load_explicit(&f->inside[GROUP_ENTERED], memory_order_relaxed),
                              memory_order_release);
    f->inside = NULL;
}

int64_t flight_calls_take(struct flight *f, uint32_t ret_us[FLIGHT_KINDS])
{
    int64_t cpu_us = f->calls_cpu_us;

    f->calls_cpu_us = 0;
    for (int i = 0; i < FLIGHT_KINDS; i++) {
        ret_us[i] = f->call_us[i] < UINT32_MAX ? (uint32_t)f->call_us[i] : UINT32_MAX;
        f->call_us[i] = 0;
    }
    return cpu_us;
}

void flight_step_add(struct flight *f, const struct flight_step *step)
{
    uint64_t i = atomic_load_explicit(&f->page->steps, memory_order_relaxed), word[STEP_WORDS - 1];
    _Atomic uint64_t *slot = f->page->step_ring[i % FLIGHT_STEPS];

    memcpy(word, step, sizeof(word));
    atomic_store(&slot[WORD_VERSION], 2 * i + 1); /* as in flight_enter */
    for (size_t k = 1; k < STEP_WORDS; k++)
        atomic_store_explicit(&slot[k], word[k - 1], memory_order_release);
    atomic_store(&slot[WORD_VERSION], 2 * i + 2);
    atomic_store(&f->page->steps, i + 1);
}

void flight_cause_set(struct flight *f, enum exit_cause cause)
{
    atomic_store(&f->page->cause, (uint32_t)cause);
}

void flight_lost_set(struct flight *f, int rank)
{
    atomic_store(&f->page->lost, (uint32_t)rank + 1);
}
