#include "server/control/bulk.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "server/control/change.h"
#include "server/control/listing.h"
#include "server/control/state.h"
#include "server/http/call.h"

#define JOBS_MAX 1000   /* of one call */
#define LOOKS_MAX 20000 /* rows of the catalog looked at for it */

struct chosen {
    uint64_t v[JOBS_MAX];
    size_t n;
    uint64_t below; /* where to go on; 0: these are all */
};

/* "name~" of a list is "name" of a selector. */
static const char *from_selector(const void *selector, const char *name)
{
    return json_string_value(json_object_get(selector, strcmp(name, "name~") == 0 ? "name" : name));
}

/* Whether the body is {"selector": {...}, "dry_run", "cursor"} with something selected; else the call is answered. */
static bool check_body(struct call *call)
{
    static const char *const known[] = {"user", "project", "state", "name", "label"};
    const json_t *selector = json_object_get(call->body, "selector");
    const char *key;
    json_t *value;

    json_object_foreach (call->body, key, value) {
        bool good = strcmp(key, "selector") == 0  ? json_is_object(value)
                    : strcmp(key, "dry_run") == 0 ? json_is_boolean(value)
                    : strcmp(key, "cursor") == 0  ? json_is_string(value)
                                                  : false;

        if (!good) {
            call_problem(call, 422, "body-invalid",
                         "'%.64s' is not valid: want selector, an object; dry_run, true or false; cursor, a text", key);
            return false;
        }
    }
    json_object_foreach ((json_t *)selector, key, value) {
        size_t i = 0;

        while (i < sizeof(known) / sizeof(known[0]) && strcmp(known[i], key) != 0)
            i++;
        if (i == sizeof(known) / sizeof(known[0]) || json_string_length(value) == 0) {
            call_problem(call, 422, "selector-invalid",
                         "'%.64s' is not valid: a selector has texts as user, project, state, name and label", key);
            return false;
        }
    }
    if (json_object_size(selector) == 0)
        call_problem(call, 422, "selector-empty",
                     "a selector without a condition would be of all jobs; "
                     "{\"state\": \"active\"} says so");
    return call->status == 0;
}

/* Jobs that have not ended and that the selector names. */
static void choose(struct core *c, struct call *call, struct listing_wish *wish, uint64_t below, struct chosen *ret)
{
    struct catalog_query q;

    for (int s = JOB_SUCCEEDED; s < JOB_STATES; s++)
        wish->states[s] = false;
    listing_query(c, call, wish, &q);
    ret->n = 0;
    for (struct catalog_row *row; ret->n < JOBS_MAX && q.looks < LOOKS_MAX;) {
        const struct entry *e;

        row = catalog_next(&q, below, LOOKS_MAX - q.looks, &ret->below);
        if (!row)
            return;
        ret->below = below = row->id;
        e = table_find(&c->jobs, row->id);
        if (e && listing_fits(wish, &e->job))
            ret->v[ret->n++] = row->id;
    }
}

/* Cancel them, as many as the turn has room for. New: what they are now. */
static json_t *cancel_all(struct core *c, struct call *call, struct chosen *all, bool dry_run)
{
    json_t *list = json_array();
    char actor[80], id[24];

    (void)snprintf(actor, sizeof(actor), "user:%s", http_identity(call->req)->user);
    for (size_t i = 0; i < all->n; i++) {
        struct entry *e = table_find(&c->jobs, all->v[i]);
        struct job_cause cause = {.kind = CAUSE_CANCEL, .actor = actor, .text = "cancelled by its user, with others"};
        struct merr err;

        if (!dry_run && !state_has_room(c)) {
            all->below = all->v[i] + 1;
            break;
        }
        if (!dry_run)
            (void)change_job(c, e, &cause, &err); /* one that is on its way out already is told as that */
        (void)snprintf(id, sizeof(id), "j%llu", (unsigned long long)e->job.id);
        (void)json_array_append_new(
            list, json_pack("{s:s, s:s, s:s}", "id", id, "name", e->job.name, "state", job_state_name(e->job.state)));
    }
    return list;
}

void bulk_cancel(struct core *c, struct call *call)
{
    const char *cursor = json_string_value(json_object_get(call->body, "cursor"));
    uint64_t below = cursor ? job_id_parse(cursor) : UINT64_MAX >> 1;
    bool dry_run = json_is_true(json_object_get(call->body, "dry_run"));
    struct listing_wish wish;
    struct chosen all;
    json_t *list;
    char next[24];

    if (!check_body(call) || !listing_read(call, from_selector, json_object_get(call->body, "selector"), &wish))
        return;
    if (below == 0) {
        call_problem(call, 422, "body-invalid", "'%.64s' is no cursor that this server gave", cursor);
        return;
    }
    choose(c, call, &wish, below, &all);
    list = cancel_all(c, call, &all, dry_run);
    call->unchanged = dry_run || json_array_size(list) == 0;
    call_changed_new(call, NULL,
                     json_pack("{s:O, s:I}", "selector", json_object_get(call->body, "selector"), "cancelled",
                               (json_int_t)json_array_size(list)));
    (void)snprintf(next, sizeof(next), "j%llu", (unsigned long long)all.below);
    call_answer_new(
        call, 200,
        json_pack("{s:b, s:o, s:s?}", "dry_run", dry_run, "jobs", list, "next_cursor", all.below > 1 ? next : NULL));
}
