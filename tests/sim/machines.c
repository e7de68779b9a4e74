#include "tests/sim/machines_priv.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "api/protocol/assignment.h"

#define LOST_MATE_US (3 * SECOND) /* until ranks notice that one of them is gone */
#define MEET_US (120 * SECOND)    /* that they wait for each other at first */

/* --- files -------------------------------------------------------------------------------------------- */

static void text_add(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void text_add(struct text *t, const char *fmt, ...)
{
    char line[1024];
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    assert(n >= 0 && (size_t)n < sizeof(line));
    if (t->n + (size_t)n > t->cap) {
        t->cap = 2 * t->cap + (size_t)n + 256;
        t->data = must(realloc(t->data, t->cap));
    }
    memcpy(t->data + t->n, line, (size_t)n);
    t->n += (size_t)n;
}

/* A rank is gone with its folder. The struct stays: events that are still to be dropped look at its life. */
static void rank_bury(struct machines *m, struct sim_rank *r)
{
    if (r->life.alive)
        life_end(m->w, &r->life);
    if (r->train && r->train->ranks[r->rank] == r)
        r->train->ranks[r->rank] = NULL;
    free(r->log.data);
    r->log = (struct text){NULL, 0, 0};
    r->next = m->graves;
    m->graves = r;
}

static void folder_free(struct machines *m, struct run_folder *f)
{
    for (struct sim_rank *r = f->ranks, *next; r; r = next) {
        next = r->next;
        rank_bury(m, r);
    }
    json_decref(f->assignment);
    free(f->metrics.data);
    free(f->events.data);
    free(f);
}

struct run_folder *machines_folder(const struct box *b, const char *path)
{
    struct run_folder *f = b->runs;

    while (f && strcmp(f->path, path) != 0)
        f = f->next;
    return f;
}

void machines_remove_folder(struct machines *m, int on, const char *path)
{
    for (struct run_folder **at = &m->box[on].runs; *at; at = &(*at)->next)
        if (strcmp((*at)->path, path) == 0) {
            struct run_folder *f = *at;

            for (struct sim_rank *r = f->ranks; r; r = r->next)
                if (r->life.alive)
                    world_broken(m->w, "machine %s: the folder of %s is removed while its rank %d is alive",
                                 m->box[on].name, path, r->rank);
            *at = f->next;
            folder_free(m, f);
            return;
        }
}

struct sim_rank *machines_rank(const struct run_folder *f, int rank)
{
    struct sim_rank *r = f ? f->ranks : NULL;

    while (r && r->rank != rank)
        r = r->next;
    return r;
}

/* --- what ranks do ------------------------------------------------------------------------------------ */

static struct saved *saved_of(struct machines *m, uint64_t job)
{
    for (size_t i = 0; i < m->n_saved; i++)
        if (m->saved[i].job == job)
            return &m->saved[i];
    m->saved = must(realloc(m->saved, (m->n_saved + 1) * sizeof(*m->saved)));
    m->saved[m->n_saved] = (struct saved){.job = job};
    return &m->saved[m->n_saved++];
}

int64_t machines_wall_us(const struct machines *m, int on)
{
    return WALL_BEGIN_US + world_now_us(m->w) + m->box[on].wall_off_us;
}

static void tell(const struct run_folder *f)
{
    f->m->changed(f->m->arg, f->on);
}

/* What a trainer says of its end; a command says nothing. */
static enum exit_cause told(const struct sim_rank *r, int code)
{
    if (json_object_get(json_object_get(r->run->assignment, "spec"), "command"))
        return EXIT_CAUSE_UNTOLD;
    return code == EXIT_DONE      ? EXIT_CAUSE_DONE
           : code == EXIT_DRAINED ? EXIT_CAUSE_DRAINED
           : code == EXIT_ABORTED ? EXIT_CAUSE_ABORTED
                                  : EXIT_CAUSE_PROGRAM;
}

static uint64_t job_number(const struct run_folder *f)
{
    return strtoull(f->job + 1, NULL, 10);
}

/* The process of a rank is over. words: it leaves an exit file. */
static void process_ends(struct sim_rank *r, int code, int signal, bool words)
{
    struct run_folder *f = r->run;

    if (!r->life.alive)
        return;
    life_end(f->m->w, &r->life);
    if (r->train)
        r->train->ranks[r->rank] = NULL;
    book_end(f->m->book, job_number(f), f->generation, r->rank,
             &(struct book_rank){.words = words, .by_itself = r->by_itself, .code = code, .signal = signal});
    r->phase = FLIGHT_EXIT;
    r->shim_lost = !words;
    if (words) {
        r->has_exit = true;
        r->exit = (struct rank_exit){.status = code, .signal = signal, .at_ms = machines_wall_us(f->m, f->on) / 1000};
        exit_judge(&r->exit, &(struct exit_seen){.told = told(r, code), .asked = r->asked, .killed = r->killed});
    }
    world_note(f->m->w, "%s: rank %d of %s-g%" PRIu64 " ends: %d signal %d%s", f->m->box[f->on].name, r->rank, f->job,
               f->generation, code, signal, words ? "" : ", without a word");
    tell(f);
}

static void end_drained(void *arg)
{
    process_ends(arg, EXIT_DRAINED, 0, true);
}

static void end_aborted(void *arg)
{
    process_ends(arg, EXIT_ABORTED, 0, true);
}

static void end_done(void *arg)
{
    ((struct sim_rank *)arg)->by_itself = true;
    process_ends(arg, EXIT_DONE, 0, true);
}

/* Half of the commands save when they are told to end. */
static void end_terminated(void *arg)
{
    struct sim_rank *r = arg;
    bool saves = !r->train && r->pid % 2 == 0;

    process_ends(r, saves ? 0 : 128 + SIGTERM, saves ? 0 : SIGTERM, true);
}

static void end_of_command(void *arg)
{
    struct sim_rank *r = arg;

    if (r->hung)
        return;
    r->by_itself = true;
    process_ends(r, r->end_code, 0, true);
}

static void soon(struct sim_rank *r, int64_t least_us, int64_t most_us, world_fn *fn)
{
    struct world *w = r->run->m->w;

    world_at(w, world_now_us(w) + world_between(w, least_us, most_us), &r->life, fn, NULL, r);
}

static struct text *events_of(struct world_train *t)
{
    return t->ranks[0] ? &t->ranks[0]->run->events : NULL;
}

static void checkpoint(struct world_train *t)
{
    struct text *events = events_of(t);

    saved_of(t->m, t->job)->step = t->step;
    if (events)
        text_add(events,
                 "{\"type\":\"checkpoint\",\"rank\":0,\"step\":%" PRIu64 ",\"path\":\"/jobs/j%" PRIu64
                 "/checkpoints/step-%08" PRIu64 "\",\"bytes\":1000,\"stored_bytes\":1000,\"seconds\":0.1}\n",
                 t->step, t->job, t->step);
}

static void train_give_up(void *arg)
{
    struct world_train *t = arg;

    for (int i = 0; i < t->world; i++)
        if (t->ranks[i] && !t->ranks[i]->hung)
            process_ends(t->ranks[i], EXIT_ABORTED, 0, true);
}

static enum flight_order asked(const struct world_train *t)
{
    enum flight_order most = FLIGHT_GO;

    for (int i = 0; i < t->world; i++)
        if (t->ranks[i]->order > most && t->ranks[i]->order < FLIGHT_ABORT)
            most = t->ranks[i]->order;
    return most;
}

static bool complete(const struct world_train *t)
{
    for (int i = 0; i < t->world; i++)
        if (!t->ranks[i] || t->ranks[i]->hung)
            return false;
    return true;
}

static void all_end(struct world_train *t, world_fn *how)
{
    t->over = true;
    for (int i = 0; i < t->world; i++)
        if (t->ranks[i])
            soon(t->ranks[i], 0, SECOND / 20, how);
}

static void train_steps(void *arg)
{
    struct world_train *t = arg;
    struct world *w = t->m->w;
    enum flight_order order;

    if (t->over)
        return;
    if (!complete(t)) { /* somebody is missing for good: the others notice that peers are gone, not that they hang */
        for (int i = 0; i < t->world; i++)
            if (!t->ranks[i]) {
                t->over = true;
                world_at(w, world_now_us(w) + LOST_MATE_US, NULL, train_give_up, NULL, t);
                return;
            }
        world_at(w, world_now_us(w) + t->step_us, NULL, train_steps, NULL, t);
        return;
    }
    if (!t->resumed) {
        t->resumed = true;
        t->step = saved_of(t->m, t->job)->step;
        text_add(events_of(t),
                 "{\"type\":\"resumed\",\"rank\":0,\"step\":%" PRIu64 ",\"path\":\"/jobs/j%" PRIu64
                 "/checkpoints\",\"tier\":\"disk\",\"source\":\"disk\","
                 "\"seconds\":0.1}\n",
                 t->step, t->job);
    } else {
        t->step++;
        text_add(&t->ranks[0]->run->metrics,
                 "{\"step\":%" PRIu64 ",\"loss\":2.5,\"lr\":0.001,\"tokens\":64,\"tokens_per_s\":100,\"step_ms\":%lld,"
                 "\"generation\":%" PRIu64 ",\"ranks\":%d}\n",
                 t->step - 1, (long long)(t->step_us / 1000), t->generation, t->world);
    }
    t->moved_us = world_now_us(w);
    for (int i = 0; i < t->world; i++) {
        t->ranks[i]->step = t->step;
        t->ranks[i]->phase = FLIGHT_FORWARD;
    }
    order = asked(t);
    if (t->step >= t->steps) {
        checkpoint(t);
        text_add(events_of(t), "{\"type\":\"finished\",\"rank\":0,\"step\":%" PRIu64 "}\n", t->step);
        all_end(t, end_done);
        return;
    }
    if (order == FLIGHT_SAVE || order == FLIGHT_DRAIN)
        checkpoint(t);
    else if (order != FLIGHT_GO) /* it stays in memory: for the next generation the same */
        saved_of(t->m, t->job)->step = t->step;
    if (order > FLIGHT_SAVE) {
        all_end(t, end_drained);
        return;
    }
    for (int i = 0; i < t->world && order == FLIGHT_SAVE; i++)
        if (t->ranks[i]->order == FLIGHT_SAVE)
            t->ranks[i]->order = FLIGHT_GO;
    world_at(w, world_now_us(w) + t->step_us, NULL, train_steps, NULL, t);
}

static struct world_train *train_of(struct machines *m, uint64_t job, uint64_t generation)
{
    struct world_train *t = m->trains;

    while (t && (t->job != job || t->generation != generation))
        t = t->next;
    return t;
}

/* A rank has waited long enough for the others: they have gone, or never came. */
static void stop_waiting(void *arg)
{
    struct sim_rank *r = arg;

    if (r->phase == FLIGHT_RENDEZVOUS && !r->hung)
        process_ends(r, EXIT_ABORTED, 0, true);
}

/* A rank of a train job runs: it waits for the others of its generation. */
static void train_join(struct sim_rank *r)
{
    struct run_folder *f = r->run;
    uint64_t job = job_number(f);
    const json_t *spec = json_object_get(f->assignment, "spec");
    struct world_train *t = train_of(f->m, job, f->generation);

    if (!t) {
        t = must(calloc(1, sizeof(*t)));
        t->m = f->m;
        t->job = job;
        t->generation = f->generation;
        t->world = (int)json_integer_value(json_object_get(f->assignment, "world"));
        t->ranks = must(calloc((size_t)t->world, sizeof(struct sim_rank *)));
        t->steps = (uint64_t)json_integer_value(json_object_get(json_object_get(spec, "train"), "steps"));
        t->step_us = world_between(f->m->w, SECOND / 10, SECOND);
        t->next = f->m->trains;
        f->m->trains = t;
    }
    if (t->ranks[r->rank])
        world_broken(f->m->w, "two processes are rank %d of j%" PRIu64 "-g%" PRIu64 " at once", r->rank, job,
                     f->generation);
    t->ranks[r->rank] = r;
    r->train = t;
    r->phase = FLIGHT_RENDEZVOUS;
    soon(r, MEET_US, MEET_US, stop_waiting);
    if (++t->joined == t->world)
        world_at(f->m->w, world_now_us(f->m->w) + world_between(f->m->w, SECOND / 10, SECOND), NULL, train_steps, NULL,
                 t);
}

/* The process of a rank is there. */
static void process_runs(void *arg)
{
    struct sim_rank *r = arg;
    const json_t *spec = json_object_get(r->run->assignment, "spec"), *argv;

    r->ids = true;
    text_add(&r->log, "rank %d of %s-g%" PRIu64 "\n", r->rank, r->run->job, r->run->generation);
    argv = json_object_get(json_object_get(spec, "command"), "argv");
    if (argv) { /* play MILLISECONDS EXIT-CODE [stubborn] */
        const char *ms = json_string_value(json_array_get(argv, 1)), *code = json_string_value(json_array_get(argv, 2));
        struct world *w = r->run->m->w;

        r->end_code = code ? (int)strtol(code, NULL, 10) : 0;
        r->stubborn = json_array_size(argv) > 3;
        r->phase = FLIGHT_FORWARD;
        world_at(w, world_now_us(w) + (ms ? strtol(ms, NULL, 10) : 0) * 1000, &r->life, end_of_command, NULL, r);
    } else if (r->slot < 0) { /* a source of state: it is done once the others have it, or gives it up */
        soon(r, SECOND / 5, 2 * SECOND, world_chance(r->run->m->w, 0.9) ? end_done : end_aborted);
    } else {
        train_join(r);
    }
    tell(r->run);
}

/* --- what is done to them ------------------------------------------------------------------------------ */

void machines_rank_start(struct sim_rank *r)
{
    struct run_folder *f = r->run;
    const struct book_rank *before = book_find(f->m->book, job_number(f), f->generation, r->rank);

    if (before && f->m->box[f->on].wiped_us < 0)
        world_broken(f->m->w, "machine %s: rank %d of %s-g%" PRIu64 " is started for the second time",
                     f->m->box[f->on].name, r->rank, f->job, f->generation);
    (void)book_begin(f->m->book, job_number(f), f->generation, r->rank);
    life_begin(r->run->m->w, &r->life);
    soon(r, SECOND / 200, SECOND / 5, process_runs);
}

void machines_rank_abort(struct sim_rank *r)
{
    if (r->life.alive && !r->hung && r->train)
        soon(r, 0, SECOND / 20, end_aborted);
}

void machines_rank_ask(struct sim_rank *r)
{
    if (!r->life.alive || r->hung)
        return;
    r->asked = true;
    if (!r->stubborn)
        soon(r, SECOND / 100, SECOND, end_terminated);
}

void machines_rank_kill(struct sim_rank *r, bool words)
{
    r->killed = true;
    process_ends(r, 128 + SIGKILL, SIGKILL, words);
}

/* --- machines ----------------------------------------------------------------------------------------- */

struct machines *machines_new(struct world *w, int n, int slots, void (*changed)(void *arg, int i), void *arg)
{
    struct machines *m = must(calloc(1, sizeof(*m)));

    *m = (struct machines){.w = w, .n = n, .slots = slots, .next_pid = 1000, .changed = changed, .arg = arg};
    m->book = book_new();
    m->box = must(calloc((size_t)n, sizeof(*m->box)));
    for (int i = 0; i < n; i++) {
        m->box[i].wiped_us = -1;
        (void)snprintf(m->box[i].name, sizeof(m->box[i].name), "n%05d", i);
    }
    return m;
}

void machines_free(struct machines *m)
{
    if (!m)
        return;
    for (int i = 0; i < m->n; i++)
        while (m->box[i].runs) {
            struct run_folder *f = m->box[i].runs;

            m->box[i].runs = f->next;
            folder_free(m, f);
        }
    for (struct sim_rank *r = m->graves, *next; r; r = next) {
        next = r->next;
        free(r);
    }
    for (struct world_train *t = m->trains, *next; t; t = next) {
        next = t->next;
        free(t->ranks);
        free(t);
    }
    free(m->saved);
    book_free(m->book);
    free(m->box);
    free(m);
}

void machines_crash_agent(struct machines *m, int i, int n)
{
    m->box[i].crash_in = n;
}

bool machines_agent_crashed(const struct machines *m, int i)
{
    return m->box[i].crashed;
}

struct book *machines_book(const struct machines *m)
{
    return m->book;
}

const char *machines_name(const struct machines *m, int i)
{
    return m->box[i].name;
}

bool machines_up(const struct machines *m, int i)
{
    return !m->box[i].down;
}

void machines_reboot(struct machines *m, int i)
{
    m->box[i].boot++;
    for (struct run_folder *f = m->box[i].runs; f; f = f->next)
        for (struct sim_rank *r = f->ranks; r; r = r->next)
            process_ends(r, 0, 0, false);
}

void machines_wipe(struct machines *m, int i)
{
    machines_reboot(m, i);
    m->box[i].wiped_us = world_now_us(m->w);
    for (const struct run_folder *f = m->box[i].runs; f; f = f->next)
        for (const struct sim_rank *r = f->ranks; r; r = r->next)
            book_lose_files(m->book, job_number(f), f->generation, r->rank);
    while (m->box[i].runs)
        machines_remove_folder(m, i, m->box[i].runs->path);
}

void machines_down(struct machines *m, int i, bool down)
{
    m->box[i].down = down;
    if (down)
        machines_reboot(m, i);
}

void machines_fill_disk(struct machines *m, int i, bool full)
{
    m->box[i].disk_full = full;
}

void machines_step_clock(struct machines *m, int i, int64_t by_us)
{
    m->box[i].wall_off_us += by_us;
}

/* One of the ranks that are alive on a machine, by chance; NULL: there is none. */
static struct sim_rank *any_rank(struct machines *m, int i)
{
    struct sim_rank *found = NULL;
    uint64_t seen = 0;

    for (struct run_folder *f = m->box[i].runs; f; f = f->next)
        for (struct sim_rank *r = f->ranks; r; r = r->next)
            if (r->life.alive && world_draw(m->w, ++seen) == 0)
                found = r;
    return found;
}

void machines_kill_rank(struct machines *m, int i, int signal)
{
    struct sim_rank *r = any_rank(m, i);

    if (r)
        process_ends(r, 128 + signal, signal, true);
}

void machines_kill_shim(struct machines *m, int i)
{
    struct sim_rank *r = any_rank(m, i);

    if (r)
        process_ends(r, 0, 0, false);
}

void machines_hang_rank(struct machines *m, int i)
{
    struct sim_rank *r = any_rank(m, i);

    if (!r)
        return;
    r->hung = true;
    book_hang(m->book, job_number(r->run), r->run->generation, r->rank, world_now_us(m->w));
}

void machines_end_hangs(struct machines *m, int i)
{
    for (struct run_folder *f = m->box[i].runs; f; f = f->next)
        for (struct sim_rank *r = f->ranks; r; r = r->next)
            if (r->hung && (!r->train || !r->train->resumed)) /* else the server finds it */
                process_ends(r, 128 + SIGKILL, SIGKILL, true);
}

int machines_alive(const struct machines *m, int i)
{
    int n = 0;

    for (struct run_folder *f = m->box[i].runs; f; f = f->next)
        for (struct sim_rank *r = f->ranks; r; r = r->next)
            n += r->life.alive;
    return n;
}

int machines_folders(const struct machines *m, int i)
{
    int n = 0;

    for (struct run_folder *f = m->box[i].runs; f; f = f->next)
        n++;
    return n;
}
