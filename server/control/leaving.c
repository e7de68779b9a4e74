#include "server/control/leaving.h"

#include "base/log.h"
#include "server/control/booking.h"
#include "server/control/care.h"
#include "server/control/change.h"
#include "server/control/contact.h"
#include "server/control/nodes.h"
#include "server/control/state.h"

void leaving_take(struct core *c, struct node *n, const struct registration *r)
{
    bool had = n->leaves_us > 0;

    if (r->leaves_at_us != n->leaves_us || r->leaving != n->leaving)
        change_node(c, n);
    n->leaves_us = r->leaves_at_us;
    if (had && r->leaves_at_us == 0)
        booking_node_gone(c, n->name);
    if (r->leaves_at_us > 0 && r->leaves_at_us - c->now.wall_us <= BOOKINGS_LONGEST_US &&
        !booking_node_goes(c, n->name, r->leaves_at_us))
        log_error("node %s goes for good, and there is no room in the calendar for that: jobs may be placed beyond it",
                  n->name);
    if (r->leaving && !n->leaving)
        care_hold(c, n, "agent", "it was told to leave");
    else if (n->leaving && !r->leaving)
        care_forgive(c, n, "agent"); /* another agent, which was not */
    n->leaving = r->leaving;
    if (n->leaving && n->leaves_us > 0)
        nodes_hurry(c, n, moment_mono_of(&c->now, n->leaves_us));
}

/* Whether nothing of the node is needed by anybody any more. */
static bool is_done(const struct core *c, const struct node *n)
{
    char why[256];

    if (n->contact == NODE_LOST)
        return n->leaves_us <= c->now.wall_us;
    return n->leaving && n->drain && n->contact == NODE_READY && n->n_listed == 0 &&
           !nodes_needs(c, n, why, sizeof(why));
}

void leaving_tick(struct core *c)
{
    for (size_t i = c->cluster.n_nodes; i-- > 0;) {
        struct node *n = c->cluster.nodes[i];

        if (n->leaves_us == 0 || !is_done(c, n))
            continue;
        booking_node_gone(c, n->name);
        contact_remove(c, n, "scheduler");
    }
}
