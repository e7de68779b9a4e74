/* The machine of an agent, simulated: the second implementation of worker/agent/machine.h. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "api/protocol/assignment.h"
#include "tests/sim/machines_priv.h"

static struct sim_rank *rank_of(const struct machine_rank *r)
{
    return machines_rank(machines_folder(&r->machine->m->box[r->machine->on], r->path), r->rank);
}

/* The agent is about to do something. False: it has died instead. */
static bool acts(const struct machine *h)
{
    struct box *b = &h->m->box[h->on];

    b->crashed = b->crashed || (b->crash_in > 0 && --b->crash_in == 0);
    return !b->crashed;
}

struct machine *machines_open(struct machines *m, int i)
{
    struct machine *view = must(calloc(1, sizeof(*view)));

    m->box[i].crash_in = 0;
    m->box[i].crashed = false;

    *view = (struct machine){.m = m, .on = i};
    return view;
}

void machine_free(struct machine *h)
{
    free(h);
}

int64_t machine_mono_us(const struct machine *h)
{
    return world_now_us(h->m->w);
}

int64_t machine_wall_us(const struct machine *h)
{
    return machines_wall_us(h->m, h->on);
}

void machine_boot_id(const struct machine *h, char ret[PROC_BOOT_ID_MAX])
{
    (void)snprintf(ret, PROC_BOOT_ID_MAX, "%s-boot-%d", h->m->box[h->on].name, h->m->box[h->on].boot);
}

void machine_keep_images(struct machine *h, const int *slots, size_t n)
{
    (void)h;
    (void)slots;
    (void)n;
}

bool machine_has_image(const struct machine *h, int slot)
{
    (void)h;
    (void)slot;
    return false;
}

int machine_pressure(const struct machine *h)
{
    (void)h;
    return -1;
}

int machine_steal(struct machine *h)
{
    (void)h;
    return -1;
}

void machine_host(struct machine *h, int ret[REPORT_HOST_NUMBERS])
{
    (void)h;
    memset(ret, 0xff, REPORT_HOST_NUMBERS * sizeof(*ret)); /* -1 */
}

/* Nothing to poll: machines_new() says who is told of changes. */
int machine_fd(const struct machine *h)
{
    (void)h;
    return -1;
}

bool machine_is_shared(const struct machine *h)
{
    (void)h;
    return false;
}

int machine_run_folder(const struct machine *h, const char *job, uint64_t generation, char ret[PATH_MAX],
                       struct merr *err)
{
    (void)err;
    (void)snprintf(ret, PATH_MAX, "/%s/%s-g%" PRIu64, h->m->box[h->on].name, job, generation);
    return 0;
}

int machine_port_free(const struct machine *h, int port, struct merr *err)
{
    (void)h;
    (void)port;
    (void)err;
    return 0;
}

int machine_run_make(struct machine *h, const char *folder, const char *dir, const char *user, struct merr *err)
{
    struct box *b = &h->m->box[h->on];
    const char *name = strrchr(folder, '/') + 1, *g = strstr(name, "-g");
    struct run_folder *f;

    if (!acts(h))
        return merr_set(err, -EIO, "the agent is dead");
    (void)dir;
    (void)user;
    if (machines_folder(b, folder))
        return 0;
    if (b->disk_full)
        return merr_set(err, -ENOSPC, "cannot make '%s': no space left on device", folder);
    f = must(calloc(1, sizeof(*f)));
    f->m = h->m;
    f->on = h->on;
    (void)snprintf(f->path, sizeof(f->path), "%s", folder);
    (void)snprintf(f->job, sizeof(f->job), "%.*s", (int)(g - name), name);
    f->generation = strtoull(g + 2, NULL, 10);
    f->next = b->runs;
    b->runs = f;
    return 0;
}

int machine_run_keep(struct machine *h, const char *folder, enum job_kind kind, const struct assignment *assignment,
                     struct merr *err)
{
    struct box *b = &h->m->box[h->on];
    struct run_folder *f = machines_folder(b, folder);

    if (!acts(h))
        return merr_set(err, -EIO, "the agent is dead");
    (void)kind;
    assert(f);
    if (b->disk_full)
        return merr_set(err, -ENOSPC, "cannot write '%s/assignment.json': no space left on device", folder);
    json_decref(f->assignment);
    f->assignment = must(assignment_write(assignment));
    f->boot = b->boot;
    return 0;
}

int machine_each_run(struct machine *h, machine_run_fn *fn, void *arg, struct merr *err)
{
    struct box *b = &h->m->box[h->on];
    int code = 0;

    for (struct run_folder *f = b->runs, *next; f; f = next) {
        struct assignment a;
        int one = 0;

        next = f->next;
        if (!f->assignment) {
            machines_remove_folder(h->m, h->on, f->path);
            continue;
        }
        one = assignment_read(f->assignment, &a, code == 0 ? err : NULL);
        if (one == 0) {
            one = fn(arg, f->path, &a, f->boot == b->boot, code == 0 ? err : NULL);
            assignment_clear(&a);
        }
        code = code == 0 ? one : code;
    }
    return code;
}

int machine_run_remove(struct machine *h, const char *folder, struct merr *err)
{
    if (!acts(h))
        return merr_set(err, -EIO, "the agent is dead");
    machines_remove_folder(h->m, h->on, folder);
    return 0;
}

ssize_t machine_run_read(const struct machine *h, const char *folder, const char *name, int rank, off_t offset,
                         char *text, size_t n, off_t *ret_size)
{
    const struct run_folder *f = machines_folder(&h->m->box[h->on], folder);
    const struct sim_rank *r = rank >= 0 ? machines_rank(f, rank) : NULL;
    const struct text *t;

    if (!f || (rank >= 0 && !r))
        return -ENOENT;
    t = rank >= 0 ? &r->log : strcmp(name, "metrics.jsonl") == 0 ? &f->metrics : &f->events;
    *ret_size = (off_t)t->n;
    if ((size_t)offset >= t->n)
        return 0;
    n = n < t->n - (size_t)offset ? n : t->n - (size_t)offset;
    memcpy(text, t->data + offset, n);
    return (ssize_t)n;
}

void machine_run_tell(struct machine *h, const char *folder, const struct program_telling *t)
{
    (void)h; /* simulated commands go by signals */
    (void)folder;
    (void)t;
}

void machine_log_drop(const struct machine *h, const char *folder, int rank, off_t before)
{
    (void)h;
    (void)folder;
    (void)rank;
    (void)before;
}

void machine_rank_share(struct machine_rank *r, int n)
{
    (void)r;
    (void)n;
}

struct machine_rank *machine_rank_new(struct machine *h, const char *folder, int rank)
{
    struct machine_rank *r = must(calloc(1, sizeof(*r)));

    r->machine = h;
    r->rank = rank;
    (void)snprintf(r->path, sizeof(r->path), "%s", folder);
    return r;
}

void machine_rank_free(struct machine_rank *r)
{
    free(r);
}

int machine_rank_page(struct machine_rank *r, struct merr *err)
{
    struct run_folder *f = machines_folder(&r->machine->m->box[r->machine->on], r->path);
    struct sim_rank *s = machines_rank(f, r->rank);

    if (!acts(r->machine))
        return merr_set(err, -EIO, "the agent is dead");
    assert(f);
    if (s && s->page)
        return merr_set(err, -EEXIST, "rank %d of '%s' has a page already", r->rank, r->path);
    if (!s) {
        s = must(calloc(1, sizeof(*s)));
        s->run = f;
        s->rank = r->rank;
        s->next = f->ranks;
        f->ranks = s;
    }
    s->page = true;
    return 0;
}

/* Nobody else's process may be on the slot: whatever the server and the agent think, a device has one owner. */
static void check_slot(struct machines *m, int on, const struct sim_rank *mine)
{
    for (const struct run_folder *f = m->box[on].runs; f; f = f->next)
        for (const struct sim_rank *r = f->ranks; r; r = r->next)
            if (r != mine && r->life.alive && r->slot == mine->slot && r->slot >= 0)
                world_broken(m->w, "machine %s: slot %d is given to %s-g%" PRIu64 " while %s-g%" PRIu64 " is on it",
                             m->box[on].name, r->slot, mine->run->job, mine->run->generation, f->job, f->generation);
}

int machine_rank_place(const struct machine_rank *r, const struct machine_launch *l, struct machine_place *ret,
                       struct merr *err)
{
    (void)r;
    (void)l;
    (void)ret;
    return merr_set(err, -ENOTSUP, "nobody has sessions in a simulation");
}

int machine_rank_start(struct machine_rank *r, const struct machine_launch *l, struct merr *err)
{
    struct machines *m = r->machine->m;
    struct sim_rank *s = rank_of(r);

    if (!acts(r->machine))
        return merr_set(err, -EIO, "the agent is dead");
    assert(s);
    if (s->life.number)
        return merr_set(err, -EBUSY, "rank %d of '%s' has a shim already", r->rank, r->path);
    s->slot = l->slot;
    s->pid = m->next_pid++;
    check_slot(m, r->machine->on, s);
    machines_rank_start(s);
    world_note(m->w, "%s: rank %d of %s starts on slot %d", m->box[r->machine->on].name, r->rank,
               strrchr(r->path, '/') + 1, l->slot);
    return 0;
}

enum machine_sight machine_rank_look(struct machine_rank *r)
{
    const struct sim_rank *s = rank_of(r);

    if (!s || !s->life.alive)
        return MACHINE_GONE;
    return s->ids ? MACHINE_RUNNING : MACHINE_STARTING;
}

enum machine_sight machine_rank_find(struct machine_rank *r)
{
    const struct sim_rank *s = rank_of(r);

    return s && s->ids ? MACHINE_RUNNING : MACHINE_STARTING;
}

bool machine_rank_watched(const struct machine_rank *r)
{
    const struct sim_rank *s = rank_of(r);

    return s && s->life.alive;
}

int machine_rank_exit(const struct machine_rank *r, struct rank_exit *ret)
{
    const struct sim_rank *s = rank_of(r);

    if (!s || !s->has_exit)
        return -ENOENT;
    *ret = s->exit;
    return 0;
}

void machine_rank_done(struct machine_rank *r)
{
    (void)r;
}

void machine_rank_keep_exit(const struct machine_rank *r, const struct rank_exit *e)
{
    struct sim_rank *s = rank_of(r);

    if (!acts(r->machine) || !s)
        return;
    if (s->has_exit)
        world_broken(r->machine->m->w, "%s: rank %d in %s left word of its end, and its agent writes '%s' over it",
                     r->machine->m->box[r->machine->on].name, r->rank, r->path, e->why);
    s->has_exit = true;
    s->exit = *e;
}

bool machine_rank_clear(struct machine_rank *r)
{
    const struct sim_rank *s = rank_of(r);

    return !s || !s->life.alive;
}

/* No program of the simulator's handles another signal. */
void machine_rank_signal(const struct machine_rank *r, int signal)
{
    struct sim_rank *s = rank_of(r);

    if (signal == SIGTERM && acts(r->machine) && s)
        machines_rank_ask(s);
}

void machine_rank_kill(const struct machine_rank *r, int try)
{
    struct sim_rank *s = rank_of(r);

    if (acts(r->machine) && s)
        machines_rank_kill(s, try < 3);
}

void machine_rank_order(const struct machine_rank *r, enum flight_order order)
{
    struct sim_rank *s = rank_of(r);

    if (!s || !s->page || order <= s->order || !acts(r->machine))
        return;
    s->order = order;
    if (order == FLIGHT_ABORT)
        machines_rank_abort(s);
}

void machine_rank_try(const struct machine_rank *r, uint32_t number) /* no device is slow there */
{
    (void)r;
    (void)number;
}

bool machine_rank_progress(struct machine_rank *r, uint64_t *ret_step, enum flight_phase *ret_phase)
{
    const struct sim_rank *s = rank_of(r);

    if (!s || !s->page)
        return false;
    *ret_step = s->step;
    *ret_phase = s->phase;
    return true;
}

struct report_ack machine_rank_ack(const struct machine_rank *r)
{
    (void)r;
    return (struct report_ack){.seq = 0};
}

struct report_stall machine_rank_stall(struct machine_rank *r, enum job_kind kind, int64_t least_us)
{
    const struct sim_rank *s = rank_of(r);
    const struct world_train *t = s && s->life.alive ? s->train : NULL;
    struct report_stall told = {.peer = -1};
    bool waits;

    (void)kind;
    if (!t || !t->resumed || t->over)
        return told;
    told.idle_us = world_now_us(r->machine->m->w) - t->moved_us;
    if (told.idle_us < least_us)
        return (struct report_stall){.peer = -1};
    waits = !s->hung;
    told.gap_us = t->step_us;
    told.stopped = s->hung && s->pid % 2 == 0; /* one that is not has not entered */
    told.groups = must(calloc(1, sizeof(*told.groups)));
    told.n_groups = 1;
    told.groups[0] = (struct report_group){.name = "world",
                                           .key = (int64_t)(t->job << 16 | t->generation),
                                           .entered = (int64_t)t->step + waits,
                                           .left = (int64_t)t->step,
                                           .size = t->world};
    if (waits) {
        (void)snprintf(told.op, sizeof(told.op), "all_reduce");
        told.key = told.groups[0].key;
        told.call = told.groups[0].entered;
    }
    return told;
}

int *machine_rank_steps(struct machine_rank *r, size_t *ret_n)
{
    (void)r;
    *ret_n = 0;
    return NULL; /* simulated ranks tell of no steps yet */
}

struct machine_evidence *machine_evidence_begin(struct machine *h, struct machine_rank *const *ranks, size_t n,
                                                bool python, int64_t budget_us)
{
    (void)h;
    (void)ranks;
    (void)n;
    (void)python;
    (void)budget_us;
    return NULL; /* simulated ranks have no processes to look at */
}

bool machine_evidence_ready(const struct machine_evidence *e)
{
    return e == NULL;
}

json_t *machine_evidence_end(struct machine_evidence *e, char **ret_kernel)
{
    (void)e;
    (void)ret_kernel;
    return NULL;
}

pid_t machine_rank_pid(const struct machine_rank *r)
{
    const struct sim_rank *s = rank_of(r);

    return s && s->ids ? s->pid : 0;
}

pid_t machine_rank_shim(const struct machine_rank *r)
{
    return machine_rank_pid(r);
}

json_t *machine_rank_tail(const struct machine_rank *r)
{
    (void)r;
    return json_array();
}

void machine_memory_close(struct machine *h, const char *job, bool done)
{
    (void)h;
    (void)job;
    (void)done;
}

void machine_memory_sweep(struct machine *h, bool (*used)(const void *arg, const char *job), const void *arg)
{
    (void)h;
    (void)used;
    (void)arg;
}

void machine_memory_drop(struct machine *h)
{
    (void)h;
}
