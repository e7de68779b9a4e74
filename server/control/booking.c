#include "server/control/booking.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "server/control/records.h"
#include "server/control/state.h"
#include "server/http/call.h"

#define SECOND_US INT64_C(1000000)
#define LONGEST_S (BOOKINGS_LONGEST_US / SECOND_US)

/* --- what is told ------------------------------------------------------------------------------------- */

static json_t *text_or_null(const char *text)
{
    return *text ? json_string(text) : json_null();
}

static json_t *view(const struct core *c, const struct booking *b)
{
    struct calendar_span s = calendar_next(b->span, b->every_us, c->now.wall_us);
    json_t *nodes = json_array(), *o;
    bool ends = s.to_us == CALENDAR_NEVER_US;
    char id[24];

    bookings_name(b, id);
    for (size_t i = 0; i < b->n_parts; i++)
        if (i == 0 || strcmp(b->parts[i].node, b->parts[i - 1].node) != 0)
            (void)json_array_append_new(nodes, json_string(b->parts[i].node));
    o = json_pack("{s:s, s:o, s:o, s:b, s:s, s:s, s:o}", "id", id, "from", cluster_time(s.from_us), "to",
                  ends ? json_null() : cluster_time(s.to_us), "now", s.from_us <= c->now.wall_us, "reason", b->reason,
                  "by", b->by, "nodes", nodes);
    if (!b->reserved) {
        (void)json_object_set_new(o, "every_s", b->every_us > 0 ? json_integer(b->every_us / SECOND_US) : json_null());
        return o;
    }
    (void)json_object_set_new(o, "devices", json_integer((json_int_t)b->n_parts));
    (void)json_object_set_new(o, "class", text_or_null(b->class_));
    (void)json_object_set_new(o, "project", text_or_null(b->project));
    (void)json_object_set_new(o, "user", text_or_null(b->user));
    return o;
}

static void list(struct core *c, struct call *call, bool reserved)
{
    json_t *all = json_array();

    for (size_t i = 0; i < c->bookings.n; i++)
        if (c->bookings.v[i].reserved == reserved)
            (void)json_array_append_new(all, view(c, &c->bookings.v[i]));
    call_answer_new(call, 200, json_pack("{s:o}", reserved ? "reservations" : "maintenance", all));
}

void booking_list_maintenance(struct core *c, struct call *call)
{
    list(c, call, false);
}

void booking_list_reservations(struct core *c, struct call *call)
{
    list(c, call, true);
}

/* --- what is asked for -------------------------------------------------------------------------------- */

static void refuse(struct call *call, const char *field, const char *wants)
{
    call_problem(call, 422, "booking-invalid", "'%s' is not valid: want %s", field, wants);
}

static bool only_known(struct call *call, const char *const *known)
{
    const char *key;
    json_t *value;

    json_object_foreach (call->body, key, value) {
        size_t i = 0;

        while (known[i] && strcmp(known[i], key) != 0)
            i++;
        if (!known[i]) {
            call_problem(call, 422, "unknown-field", "there is no field '%.64s' here", key);
            return false;
        }
    }
    return true;
}

/* A time of the body, absent: otherwise. False: the call is answered. */
static bool read_time(struct call *call, const char *name, int64_t otherwise, int64_t *ret)
{
    const json_t *v = json_object_get(call->body, name);

    *ret = otherwise;
    if (!v || json_is_null(v) || (json_is_string(v) && clock_read_rfc3339(json_string_value(v), ret) == 0))
        return true;
    refuse(call, name, "a time such as 2026-11-21T06:00:00Z");
    return false;
}

static bool read_text(struct call *call, const char *name, char *ret, size_t size)
{
    const json_t *v = json_object_get(call->body, name);

    ret[0] = '\0';
    if (!v || json_is_null(v))
        return true;
    if (!json_is_string(v) || json_string_length(v) >= size || strlen(json_string_value(v)) != json_string_length(v)) {
        refuse(call, name, "a short text");
        return false;
    }
    (void)snprintf(ret, size, "%s", json_string_value(v));
    return true;
}

/* What both kinds say. False: the call is answered. */
static bool read_common(const struct core *c, struct call *call, struct booking *b)
{
    const json_t *every = json_object_get(call->body, "every_s");
    int64_t now = c->now.wall_us, from, to;

    if (!read_time(call, "from", now, &from) || !read_time(call, "to", 0, &to) ||
        !read_text(call, "reason", b->reason, sizeof(b->reason)))
        return false;
    b->span = (struct calendar_span){.from_us = from > now ? from : now, .to_us = to};
    (void)snprintf(b->by, sizeof(b->by), "%s", http_identity(call->req)->user);
    if (to <= b->span.from_us || to - b->span.from_us > BOOKINGS_LONGEST_US || from - now > BOOKINGS_LONGEST_US) {
        refuse(call, "to", "a time after 'from' and after now, and no more than 366 days");
        return false;
    }
    if (!every || json_is_null(every))
        return true;
    b->every_us = json_integer_value(every) * SECOND_US;
    if (json_is_integer(every) && json_integer_value(every) > 0 && json_integer_value(every) <= LONGEST_S &&
        b->every_us >= to - b->span.from_us)
        return true;
    refuse(call, "every_s", "seconds, no fewer than from 'from' to 'to'");
    return false;
}

/* The nodes of a maintenance; a name may be of a node that is to come. */
static bool read_nodes(const struct core *c, struct call *call, struct booking *b)
{
    const json_t *list = json_object_get(call->body, "nodes");
    size_t n = json_array_size(list);

    b->parts = n > 0 && n <= BOOKINGS_PARTS_MAX ? calloc(n, sizeof(*b->parts)) : NULL;
    for (size_t i = 0; b->parts && i < n; i++) {
        const char *name = json_string_value(json_array_get(list, i));

        if (!name || !cluster_node(&c->cluster, name)) {
            call_problem(call, 422, "unknown-node", "no node '%.63s'; `muster nodes` shows those there are",
                         name ? name : "");
            return false;
        }
        (void)snprintf(b->parts[b->n_parts].node, JOB_NODE_MAX, "%s", name);
        b->parts[b->n_parts++].slot = BOOKINGS_ALL;
    }
    if (!b->parts)
        refuse(call, "nodes", "a list of nodes");
    return b->parts != NULL;
}

static void forget(struct core *c, struct booking *b)
{
    char name[24];

    bookings_name(b, name);
    records_drop_row(c, STORE_BOOKINGS, name);
    bookings_drop(&c->bookings, b);
    (void)bookings_mark(&c->bookings, &c->cluster, c->now.wall_us);
    c->schedule_wanted = true;
}

/* It is kept, and a round follows. b is taken over. Borrowed; NULL: there is no room for it. */
static const struct booking *put(struct core *c, struct booking *b)
{
    const struct booking *kept;
    char name[24];
    uint64_t id;

    if (bookings_take(&c->bookings, b, &id) < 0) {
        free(b->parts);
        return NULL;
    }
    kept = bookings_find(&c->bookings, id);
    bookings_name(kept, name);
    if (!records_put_row_new(c, STORE_BOOKINGS, name, bookings_record(kept)))
        state_fatal(c, "out of memory for a booking");
    (void)bookings_mark(&c->bookings, &c->cluster, c->now.wall_us);
    c->schedule_wanted = true;
    return kept;
}

static void keep(struct core *c, struct call *call, struct booking *b)
{
    const struct booking *kept = put(c, b);

    if (!kept) {
        call_problem(call, 503, "too-many-bookings", "%d windows and reservations are the most this server keeps",
                     BOOKINGS_MAX);
        return;
    }
    call_changed_new(call, NULL, view(c, kept));
    call_answer_new(call, 201, view(c, kept));
}

void booking_add_maintenance(struct core *c, struct call *call)
{
    static const char *const known[] = {"nodes", "from", "to", "reason", "every_s", NULL};
    struct booking b = {.reserved = false};

    if (only_known(call, known) && read_common(c, call, &b) && read_nodes(c, call, &b))
        keep(c, call, &b);
    else
        free(b.parts);
}

/* The booking by which a node goes for good; NULL: it stays. */
static struct booking *end_of(const struct core *c, const char *node)
{
    for (size_t i = 0; i < c->bookings.n; i++) {
        struct booking *b = &c->bookings.v[i];

        if (b->span.to_us == CALENDAR_NEVER_US && strcmp(b->parts[0].node, node) == 0)
            return b;
    }
    return NULL;
}

void booking_node_gone(struct core *c, const char *node)
{
    struct booking *b = end_of(c, node);

    if (b)
        forget(c, b);
}

/* The rest of a booking by which the node goes, in place of the one that it has. False: no memory. */
static bool make_end(struct core *c, const char *node, int64_t at, struct booking *b)
{
    int64_t now = c->now.wall_us;

    b->span = (struct calendar_span){.from_us = at > now ? at : now, .to_us = CALENDAR_NEVER_US};
    b->parts = calloc(1, sizeof(*b->parts));
    if (!b->parts)
        return false;
    (void)snprintf(b->parts[0].node, sizeof(b->parts[0].node), "%s", node);
    b->parts[0].slot = BOOKINGS_ALL;
    b->n_parts = 1;
    booking_node_gone(c, node);
    return true;
}

void booking_end_node(struct core *c, struct call *call)
{
    static const char *const known[] = {"at", "reason", NULL};
    const char *node = http_param(call->req, 0);
    int64_t now = c->now.wall_us, at;
    struct booking b = {.reserved = false};

    if (!cluster_node(&c->cluster, node)) {
        call_problem(call, 404, "unknown-node", "no node '%s'; `muster nodes` shows those there are", node);
        return;
    }
    if (!only_known(call, known) || !read_time(call, "at", 0, &at) ||
        !read_text(call, "reason", b.reason, sizeof(b.reason)))
        return;
    if (at == 0 || at - now > BOOKINGS_LONGEST_US) {
        refuse(call, "at", "a time such as 2026-11-21T06:00:00Z, no more than 366 days from now");
        return;
    }
    (void)snprintf(b.by, sizeof(b.by), "%s", http_identity(call->req)->user);
    if (make_end(c, node, at, &b))
        keep(c, call, &b);
    else
        call_problem(call, 503, "no-memory", "out of memory");
}

bool booking_node_goes(struct core *c, const char *node, int64_t at_us)
{
    const struct booking *is = end_of(c, node);
    struct booking b = {.reserved = false};

    if (is && is->span.from_us == at_us)
        return true;
    (void)snprintf(b.by, sizeof(b.by), "%s", node);
    (void)snprintf(b.reason, sizeof(b.reason), "its agent says so");
    return make_end(c, node, at_us, &b) && put(c, &b) != NULL;
}

void booking_add_reservation(struct core *c, struct call *call)
{
    static const char *const known[] = {"devices", "class", "from", "to", "reason", "project", "user", NULL};
    const json_t *devices = json_object_get(call->body, "devices");
    struct booking b = {.reserved = true};
    uint64_t classes = UINT64_MAX;
    uint8_t class_;
    int there;

    if (!only_known(call, known) || !read_common(c, call, &b) ||
        !read_text(call, "class", b.class_, sizeof(b.class_)) ||
        !read_text(call, "project", b.project, sizeof(b.project)) || !read_text(call, "user", b.user, sizeof(b.user)))
        return;
    if (!json_is_integer(devices) || json_integer_value(devices) < 1 ||
        json_integer_value(devices) > BOOKINGS_PARTS_MAX) {
        refuse(call, "devices", "a number of devices");
        return;
    }
    if (!*b.project && !*b.user) {
        refuse(call, "project", "whose jobs the devices are kept for, by 'project', 'user' or both");
        return;
    }
    class_ = *b.class_ ? classes_find(&c->cluster.classes, b.class_) : 0;
    if (*b.class_)
        classes = class_ < CLASSES_MAX ? UINT64_C(1) << class_ : 0;
    if (bookings_choose(&c->bookings, &c->cluster, classes, (int)json_integer_value(devices), &b, &there)) {
        keep(c, call, &b);
        return;
    }
    free(b.parts);
    call_problem(call, 409, "not-enough-devices",
                 "%lld devices%s%s were asked for, and %d are in no other reservation or maintenance then",
                 (long long)json_integer_value(devices), *b.class_ ? " of class " : "", b.class_, there);
}

static void drop(struct core *c, struct call *call, bool reserved)
{
    const char *name = http_param(call->req, 0);
    struct booking *b = bookings_find(&c->bookings, bookings_parse(name, reserved));

    if (!b || b->reserved != reserved) {
        call_problem(call, 404, reserved ? "unknown-reservation" : "unknown-maintenance", "there is no '%.64s'", name);
        return;
    }
    call_changed_new(call, view(c, b), NULL);
    call_answer_new(call, 200, view(c, b));
    forget(c, b);
}

void booking_drop_maintenance(struct core *c, struct call *call)
{
    drop(c, call, false);
}

void booking_drop_reservation(struct core *c, struct call *call)
{
    drop(c, call, true);
}

/* --- jobs that name one ------------------------------------------------------------------------------- */

const struct booking *booking_of(const struct core *c, const struct job *j)
{
    const struct booking *b =
        j->reservation[0] ? bookings_find(&c->bookings, bookings_parse(j->reservation, true)) : NULL;

    return b && b->reserved && b->span.to_us > c->now.wall_us ? b : NULL;
}

bool booking_allows(const struct core *c, const struct job *j, char *ret_why, size_t size)
{
    const struct booking *b = booking_of(c, j);

    if (!j->reservation[0])
        return true;
    if (!b)
        (void)snprintf(ret_why, size, "there is no reservation '%s'; `muster reservation list` shows those there are",
                       j->reservation);
    else if ((*b->user && strcmp(b->user, j->user) != 0) || (*b->project && strcmp(b->project, j->project) != 0))
        (void)snprintf(ret_why, size, "reservation '%s' is for other jobs: of %s%s%s%s%s", j->reservation,
                       *b->user ? "user " : "", b->user, *b->user && *b->project ? " and " : "",
                       *b->project ? "project " : "", b->project);
    else if ((size_t)j->min > b->n_parts)
        (void)snprintf(ret_why, size, "takes at least %d devices, and reservation '%s' has %zu", j->min, j->reservation,
                       b->n_parts);
    else
        return true;
    return false;
}

/* --- time --------------------------------------------------------------------------------------------- */

/* A node that went for good, as was said, may come back as another one of its name. */
static bool is_over(const struct core *c, const struct booking *b)
{
    bool ends = b->span.to_us == CALENDAR_NEVER_US && b->span.from_us <= c->now.wall_us;
    const struct node *n = ends ? cluster_node(&c->cluster, b->parts[0].node) : NULL;

    return ends ? !n || n->contact == NODE_LOST : b->every_us == 0 && b->span.to_us <= c->now.wall_us;
}

void booking_tick(struct core *c)
{
    if (c->bookings.n == 0)
        return;
    for (size_t i = c->bookings.n; i-- > 0;)
        if (is_over(c, &c->bookings.v[i]))
            forget(c, &c->bookings.v[i]);
    if (bookings_mark(&c->bookings, &c->cluster, c->now.wall_us) || c->now.wall_us >= c->booking_due_us)
        c->schedule_wanted = true;
    c->booking_due_us = bookings_edge_us(&c->bookings, c->now.wall_us);
}

static int take_row(struct core *c, const struct store_row *row, struct merr *err)
{
    json_auto_t *o = json_loadb(row->text, row->len, 0, NULL);
    struct booking b;
    uint64_t id;
    int r = bookings_read(o, &b);

    if (r < 0)
        return merr_set(err, r, "the store's record of maintenance or of a reservation cannot be read");
    r = bookings_find(&c->bookings, b.id) ? -EINVAL : bookings_take(&c->bookings, &b, &id);
    if (r < 0)
        free(b.parts);
    return r < 0 ? merr_set(err, r == -ENOSPC ? -EINVAL : r, "a booking more than can be, or twice") : 0;
}

int booking_load(struct core *c, struct merr *err)
{
    int r = records_take_rows(c, STORE_BOOKINGS, NULL, take_row, err);

    (void)bookings_mark(&c->bookings, &c->cluster, c->now.wall_us);
    return r;
}
