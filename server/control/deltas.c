#include "server/control/deltas.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "server/control/events.h"
#include "server/control/state.h"
#include "server/control/view.h"
#include "server/http/call.h"
#include "server/http/http_parse.h"

#define PAGES 8          /* of lists of nodes that are kept */
#define SEEN_US 10000000 /* a node's last word is another one after so long, for who asks again */

struct page {
    size_t from, limit;
    uint64_t mark;
    int64_t at_us; /* monotonic */
    char *text;    /* owned; NULL: none */
};

struct deltas {
    struct page page[PAGES];
    size_t next_page;
    size_t next_node; /* to be looked at */
    uint64_t cluster; /* mark of the totals that were told last */
    bool told;        /* somebody has followed since the last tick */
};

struct deltas *deltas_new(void)
{
    return calloc(1, sizeof(struct deltas));
}

void deltas_free(struct deltas *d)
{
    for (size_t i = 0; d && i < PAGES; i++)
        free(d->page[i].text);
    free(d);
}

/* --- told to followers ------------------------------------------------------------------------------- */

static void tell_cluster(struct core *c)
{
    json_t *view = view_cluster(c);
    char *text = json_dumps(view, JSON_COMPACT);
    uint64_t mark = text ? hash_xxh3(text, strlen(text)) : 0;

    free(text);
    if (mark == c->deltas->cluster) {
        json_decref(view);
        return;
    }
    c->deltas->cluster = mark;
    events_change_new(c, 0, "", "view-cluster", view);
}

void deltas_tick(struct core *c)
{
    struct deltas *d = c->deltas;
    size_t n = c->cluster.n_nodes, told = 0;
    bool first = !d->told; /* who comes first reads the lists after this */

    d->told = events_change_followers(c) > 0;
    if (!d->told)
        return;
    for (size_t i = 0; i < n && told < DELTAS_NODES_MAX; i++) {
        struct node *node = c->cluster.nodes[d->next_node++ % n];
        uint64_t mark = view_node_mark(c, node);

        if (mark == node->told)
            continue;
        node->told = mark;
        if (first)
            continue;
        events_change_new(c, 0, "", "view-node", view_node(c, node));
        told++;
    }
    d->next_node = n > 0 ? d->next_node % n : 0;
    tell_cluster(c);
}

void deltas_jobs(struct core *c)
{
    size_t told = 0;

    if (events_change_followers(c) == 0)
        return;
    for (struct entry *e = c->jobs.dirty; e; e = e->dirty_next)
        if (told++ < DELTAS_JOBS_MAX)
            events_change_new(c, e->job.id, e->job.user, "view-job", view_job(c, &e->job, e, NULL));
    if (told > DELTAS_JOBS_MAX)
        events_change_new(c, 0, "", "reread", json_pack("{s:I}", "jobs", (json_int_t)told));
}

/* --- lists ------------------------------------------------------------------------------------------- */

/* Give the answer its ETag. Whether the client has it already: then it is answered. */
static bool is_known(struct call *call, uint64_t mark)
{
    (void)snprintf(call->etag, sizeof(call->etag), "W/\"%016llx\"", (unsigned long long)mark);
    if (!http_etag_match(http_header(call->req, "If-None-Match"), call->etag + strlen("W/")))
        return false;
    call_answer_new(call, 304, NULL);
    return true;
}

static void answer_text(struct call *call, const char *text)
{
    call->page = text ? strdup(text) : NULL;
    call->page_is_json = true;
    if (call->page)
        call_answer_new(call, 200, NULL);
    else
        call_problem(call, 503, "no-memory", "out of memory");
}

static char *page_text(struct core *c, size_t from, size_t end)
{
    json_t *list = json_array(), *doc;
    char *text;

    for (size_t i = from; i < end; i++)
        (void)json_array_append_new(list, view_node(c, c->cluster.nodes[i]));
    doc = json_pack("{s:o, s:s?}", "nodes", list, "next_cursor",
                    end < c->cluster.n_nodes && end > from ? c->cluster.nodes[end - 1]->name : NULL);
    text = doc ? json_dumps(doc, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(doc);
    return text;
}

void deltas_answer_nodes(struct core *c, struct call *call, size_t from, size_t limit)
{
    struct deltas *d = c->deltas;
    size_t end = limit < c->cluster.n_nodes - from ? from + limit : c->cluster.n_nodes;
    uint64_t mark = end < c->cluster.n_nodes;
    struct page *p = NULL;

    for (size_t i = from; i < end; i++) {
        const struct node *n = c->cluster.nodes[i];
        uint64_t of[] = {mark, view_node_mark(c, n), (uint64_t)(n->seen_wall_us / SEEN_US)};

        mark = hash_xxh3(of, sizeof(of));
    }
    if (is_known(call, mark))
        return;
    for (size_t i = 0; i < PAGES && !p; i++)
        if (d->page[i].text && d->page[i].from == from && d->page[i].limit == limit)
            p = &d->page[i];
    if (!p)
        p = &d->page[d->next_page++ % PAGES];
    if (!p->text || p->from != from || p->limit != limit || p->mark != mark ||
        c->now.mono_us - p->at_us > DELTAS_PAGE_US) {
        free(p->text);
        *p = (struct page){.from = from, .limit = limit, .mark = mark, .at_us = c->now.mono_us};
        p->text = page_text(c, from, end);
    }
    answer_text(call, p->text);
}

void deltas_answer_cluster(struct core *c, struct call *call)
{
    json_t *view = view_cluster(c);
    char *text = json_dumps(view, JSON_COMPACT | JSON_ENSURE_ASCII);

    if (!text || !is_known(call, hash_xxh3(text, strlen(text))))
        answer_text(call, text);
    free(text);
    json_decref(view);
}
