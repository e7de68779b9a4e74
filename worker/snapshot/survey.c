#include "worker/snapshot/survey.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/try.h"
#include "checkpoint/parts.h"
#include "worker/snapshot/stream.h"

#define ENTRIES_MAX 4096 /* snapshots on all nodes: each keeps a few */

/* A snapshot in one node's folder, as it travels: then its parts, then its parity as in parity_encode(). */
struct head {
    uint8_t id[16];
    uint64_t step, parity_bytes;
    uint32_t writers, parts;
};

struct entry {
    struct head h;
    int node;
    struct parity_part *part;
    struct parity p; /* nodes 0: none */
};

struct survey {
    int nodes;
    size_t n;
    struct entry v[ENTRIES_MAX];
};

/* --- one node -------------------------------------------------------------------------------------------- */

/* The data files of a folder: those that are whole and of one attempt. Of several attempts the first that is met: the
 * folder of a step holds another only while one is being replaced. */
static int scan_parts(const char *folder, struct head *h, struct parity_part part[PARITY_PARTS_MAX], struct merr *err)
{
    DIR *d = opendir(folder);
    char path[STREAM_PATH_MAX], name[32];
    struct dirent *e;

    if (!d)
        return errno == ENOENT ? 0 : merr_errno(err, -errno, "cannot list '%s'", folder);
    while ((e = readdir(d)) && h->parts < PARITY_PARTS_MAX) {
        struct mck_index ix;
        unsigned rank;

        if (sscanf(e->d_name, "rank-%5u.mck", &rank) != 1)
            continue;
        (void)snprintf(name, sizeof(name), "rank-%05u.mck", rank);
        stream_path(folder, rank, "", path);
        if (strcmp(name, e->d_name) != 0 || part_read(path, &ix, NULL) != 0)
            continue;
        if (h->parts == 0) {
            memcpy(h->id, ix.uuid, sizeof(h->id));
            h->writers = ix.writers;
        }
        if (ix.rank == rank && ix.step == h->step && memcmp(h->id, ix.uuid, sizeof(h->id)) == 0)
            part[h->parts++] = (struct parity_part){.rank = rank, .bytes = ix.file[0].file_len};
        index_clear(&ix);
    }
    (void)closedir(d);
    return 0;
}

/* What a step's parts and parity come to; path: of its parity. */
static int print_step(struct head *h, const struct parity_part *part, const char *path, struct buf *ret)
{
    struct parity p = {0};
    size_t at = ret->len;
    int r = 0;

    TRY(buf_add(ret, h, sizeof(*h)));
    TRY(buf_add(ret, part, h->parts * sizeof(*part)));
    if (parity_read(path, &p, NULL) == 0 && memcmp(p.id, h->id, sizeof(h->id)) == 0) {
        size_t before = ret->len;

        r = parity_encode(&p, ret, NULL);
        h->parity_bytes = ret->len - before;
    }
    parity_clear(&p);
    TRY(r);
    memcpy(ret->data + at, h, sizeof(*h));
    return 0;
}

static int scan(const char *dir, uint64_t step, struct parity_part *part, struct buf *ret, struct merr *err)
{
    char folder[MCK_PATH_MAX], path[MCK_PATH_MAX];
    struct head h = {.step = step};
    int r;

    TRY(folder_step_path(dir, step, NULL, folder, err));
    TRY(folder_step_path(dir, step, PARITY_NAME, path, err));
    TRY(scan_parts(folder, &h, part, err));
    r = h.parts > 0 ? print_step(&h, part, path, ret) : 0;
    return r < 0 ? merr_set(err, r, "no room for what the memory's snapshots come to") : 0;
}

static int scan_step(const char *dir, uint64_t step, struct buf *ret, struct merr *err)
{
    struct parity_part *part = calloc(PARITY_PARTS_MAX, sizeof(*part));
    int r = part ? scan(dir, step, part, ret, err) : merr_set(err, -ENOMEM, "no memory to look at snapshots");

    free(part);
    return r;
}

int survey_scan(const char *dir, struct buf *ret, struct merr *err)
{
    uint64_t *step = NULL;
    size_t n = 0;
    int r = folder_steps(dir, &step, &n, err);

    for (size_t i = 0; i < n && r == 0; i++)
        r = scan_step(dir, step[i], ret, err);
    free(step);
    return r;
}

/* --- all nodes ------------------------------------------------------------------------------------------- */

struct survey *survey_new(int nodes)
{
    struct survey *s = calloc(1, sizeof(*s));

    if (s)
        s->nodes = nodes;
    return s;
}

void survey_free(struct survey *s)
{
    for (size_t i = 0; s && i < s->n; i++) {
        free(s->v[i].part);
        parity_clear(&s->v[i].p);
    }
    free(s);
}

static bool parts_fit(const struct entry *e)
{
    for (uint32_t i = 0; i < e->h.parts; i++)
        if (e->part[i].rank >= e->h.writers || e->part[i].bytes > PARITY_BYTES_MAX)
            return false;
    return true;
}

/* Reads the snapshot at *at into e, whose tables are then its own, also on failure. */
static int read_entry(struct entry *e, const char *data, size_t len, size_t *at, struct merr *err)
{
    if (len - *at < sizeof(e->h))
        return merr_set(err, -EPROTO, "a list of snapshots is cut short");
    memcpy(&e->h, data + *at, sizeof(e->h));
    *at += sizeof(e->h);
    if (e->h.writers > PARITY_PARTS_MAX || e->h.parts > e->h.writers || e->h.parts == 0 ||
        len - *at < e->h.parts * sizeof(*e->part) || len - *at - e->h.parts * sizeof(*e->part) < e->h.parity_bytes)
        return merr_set(err, -EPROTO, "a list of snapshots has a damaged entry");
    e->part = malloc(e->h.parts * sizeof(*e->part));
    if (!e->part)
        return merr_set(err, -ENOMEM, "no memory for a list of snapshots");
    memcpy(e->part, data + *at, e->h.parts * sizeof(*e->part));
    *at += e->h.parts * sizeof(*e->part);
    if (!parts_fit(e))
        return merr_set(err, -EPROTO, "a list of snapshots names impossible data files");
    if (e->h.parity_bytes)
        TRY(parity_decode(data + *at, e->h.parity_bytes, &e->p, err));
    if (e->h.parity_bytes &&
        (e->p.writers != e->h.writers || e->p.step != e->h.step || memcmp(e->p.id, e->h.id, sizeof(e->p.id)) != 0))
        return merr_set(err, -EPROTO, "a list of snapshots has a parity of another one");
    *at += e->h.parity_bytes;
    return 0;
}

int survey_add(struct survey *s, int node, const void *data, size_t len, struct merr *err)
{
    for (size_t at = 0; at < len;) {
        struct entry *e = &s->v[s->n];
        int r;

        if (s->n == ENTRIES_MAX)
            return merr_set(err, -EMSGSIZE, "more than %d snapshots are in the memories of %d nodes", ENTRIES_MAX,
                            s->nodes);
        *e = (struct entry){.node = node};
        r = read_entry(e, data, len, &at, err);
        if (r != 0) {
            free(e->part);
            parity_clear(&e->p);
            return r;
        }
        s->n++;
    }
    return 0;
}

static bool is_of(const struct entry *e, const struct survey_plan *p)
{
    return e->h.step == p->step && e->h.writers == p->writers && memcmp(e->h.id, p->id, sizeof(p->id)) == 0;
}

static void find_parts(const struct survey *s, struct survey_plan *p)
{
    for (uint32_t i = 0; i < p->writers; i++)
        p->node[i] = -1;
    for (size_t k = 0; k < s->n; k++) {
        const struct entry *e = &s->v[k];

        for (uint32_t i = 0; is_of(e, p) && i < e->h.parts; i++)
            if (p->node[e->part[i].rank] < 0) {
                p->node[e->part[i].rank] = e->node;
                p->part[e->part[i].rank] = e->part[i];
            }
    }
}

/* How many of a member's data files are on a node. */
static uint32_t parts_of(const struct survey_plan *plan, const struct parity *p, uint32_t member, int node)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < p->member[member].parts; i++) {
        const struct parity_part *q = &p->part[p->member[member].first + i];

        n += plan->node[q->rank] == node && plan->part[q->rank].bytes == q->bytes;
    }
    return n;
}

static bool same_group(const struct parity *a, const struct parity *b)
{
    return a->nodes == b->nodes && a->parts == b->parts && a->segment == b->segment &&
           memcmp(a->part, b->part, a->parts * sizeof(*a->part)) == 0;
}

static bool is_lost(const struct survey_plan *plan, const struct parity *p, uint32_t member)
{
    for (uint32_t i = 0; i < p->member[member].parts; i++)
        if (plan->node[p->part[p->member[member].first + i].rank] < 0)
            return true;
    return false;
}

/* Which node has all of a member: its parity and its data files. -1: none. */
static int holder_of(const struct survey *s, const struct survey_plan *plan, const struct parity *p, uint32_t member)
{
    for (size_t k = 0; k < s->n; k++) {
        const struct entry *e = &s->v[k];

        if (is_of(e, plan) && e->p.nodes && e->p.index == member && same_group(&e->p, p) &&
            parts_of(plan, p, member, e->node) == p->member[member].parts)
            return e->node;
    }
    return -1;
}

/* The group of p becomes one of the plan's, unless more of it is gone than its parity makes up for. */
static void add_group(const struct survey *s, struct survey_plan *plan, const struct parity *p)
{
    struct survey_loss l = {.p = *p, .member = p->nodes};
    uint32_t lost = 0;

    for (uint32_t i = 0; i < p->nodes; i++)
        if (is_lost(plan, p, i)) {
            l.member = i;
            lost++;
        }
    for (uint32_t i = 0; i < p->nodes; i++) {
        l.holder[i] = i == l.member ? -1 : holder_of(s, plan, p, i);
        if (lost > 1 || (i != l.member && l.holder[i] < 0))
            return;
    }
    if (!lost) {
        plan->whole[plan->wholes++] = l;
        return;
    }
    for (uint32_t i = 0; i < p->member[l.member].parts; i++) {
        const struct parity_part *q = &p->part[p->member[l.member].first + i];

        plan->part[q->rank] = *q;
    }
    plan->loss[plan->losses++] = l;
}

static bool known(const struct survey_plan *plan, const struct parity *p)
{
    for (int i = 0; i < plan->losses; i++)
        if (same_group(&plan->loss[i].p, p))
            return true;
    for (int i = 0; i < plan->wholes; i++)
        if (same_group(&plan->whole[i].p, p))
            return true;
    return false;
}

/* Data files that no loss of the plan makes again. */
static uint32_t missing(const struct survey_plan *plan)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < plan->writers; i++)
        n += plan->node[i] < 0;
    for (int i = 0; i < plan->losses; i++) {
        const struct survey_loss *l = &plan->loss[i];

        for (uint32_t k = 0; k < l->p.member[l->member].parts; k++)
            n -= plan->node[l->p.part[l->p.member[l->member].first + k].rank] < 0;
    }
    return n;
}

/* The snapshot that e is of. 1: it can be had; 0: words why not. */
static int make_plan(const struct survey *s, const struct entry *e, struct survey_plan *ret, struct merr *why,
                     struct merr *err)
{
    struct survey_plan p = {.step = e->h.step, .writers = e->h.writers};
    uint32_t gone;

    memcpy(p.id, e->h.id, sizeof(p.id));
    p.part = calloc(p.writers, sizeof(*p.part));
    p.node = calloc(p.writers, sizeof(*p.node));
    p.loss = calloc((size_t)s->nodes + 1, sizeof(*p.loss));
    p.whole = calloc((size_t)s->nodes + 1, sizeof(*p.whole));
    if (!p.part || !p.node || !p.loss || !p.whole) {
        survey_plan_clear(&p);
        return merr_set(err, -ENOMEM, "no memory to plan from the snapshots of %u ranks", p.writers);
    }
    find_parts(s, &p);
    for (size_t k = 0; k < s->n; k++)
        if (is_of(&s->v[k], &p) && s->v[k].p.nodes && p.losses + p.wholes < s->nodes && !known(&p, &s->v[k].p))
            add_group(s, &p, &s->v[k].p);
    gone = missing(&p);
    if (gone == 0) {
        *ret = p;
        return 1;
    }
    (void)merr_set(why, 0,
                   "step %llu was in the nodes' memory, but %u of the %u ranks' data is gone and there is not "
                   "enough parity to make it again",
                   (unsigned long long)p.step, gone, p.writers);
    survey_plan_clear(&p);
    return 0;
}

int survey_newest(const struct survey *s, uint64_t limit, struct survey_plan *ret, struct merr *ret_lost,
                  struct merr *err)
{
    struct merr why;

    if (ret_lost)
        ret_lost->text[0] = '\0';
    for (;;) { /* down the steps */
        uint64_t step = 0;
        bool any = false, committed = false;

        for (size_t i = 0; i < s->n; i++)
            if (s->v[i].h.step < limit && (!any || s->v[i].h.step > step)) {
                step = s->v[i].h.step;
                any = true;
            }
        if (!any)
            return 0;
        for (size_t i = 0; i < s->n; i++) {
            int r = s->v[i].h.step == step ? make_plan(s, &s->v[i], ret, &why, err) : 0;

            if (r != 0)
                return r;
            committed |= s->v[i].h.step == step && s->v[i].p.nodes > 0;
        }
        if (ret_lost && committed && !ret_lost->text[0])
            *ret_lost = why;
        limit = step;
    }
}

void survey_plan_clear(struct survey_plan *p)
{
    free(p->part);
    free(p->node);
    free(p->loss);
    free(p->whole);
    *p = (struct survey_plan){0};
}
