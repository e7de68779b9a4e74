/* registration - how an agent makes itself known to the server, and what it is told
 *
 * It carries the newest version of the protocol that the agent speaks. What its slots, GPUs and network adapter are is
 * checked by those who keep them.
 */
#ifndef MUSTER_API_PROTOCOL_REGISTRATION_H
#define MUSTER_API_PROTOCOL_REGISTRATION_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "api/protocol/report.h"
#include "base/merr.h"

struct registration {
    int protocol;
    char node[PROTOCOL_NODE_MAX];
    char boot_id[PROTOCOL_NODE_MAX];     /* of the machine; "": not told */
    char incarnation[PROTOCOL_NODE_MAX]; /* of the agent's process */
    char succeeds[PROTOCOL_NODE_MAX];    /* that of the process before in the same folder; "": there was none */
    int64_t seq;                         /* of all that it has sent; 0: not told */
    char address[PROTOCOL_NODE_MAX];     /* where other nodes reach this one */
    char version[PROTOCOL_NODE_MAX];     /* of the program */
    json_t *slots;
    struct report_run *runs; /* that the agent found alive, or finished and not reported */
    size_t n_runs;
    json_t *gpus;                 /* NULL: none are offered */
    json_t *nic;                  /* NULL: not known */
    json_t *health;               /* as in a report */
    json_t *profiles;             /* NULL: nothing was measured */
    bool shared_account;          /* ranks run as the agent's own user */
    bool no_exec;                 /* it joins no sessions beside them */
    int64_t leaves_at_us;         /* wall: the node goes for good then; 0: nobody said */
    bool leaving;                 /* its agent was told to: what runs there is to move away by then */
    char rack[PROTOCOL_NODE_MAX]; /* what the node shares a switch and power with; "": not told */
};

struct registration_answer {
    int heartbeat_s;  /* between two reports */
    int lost_after_s; /* silence after which the node counts as lost */
    int64_t version;  /* of the node's wanted set */
    int protocol;     /* that the server speaks */
};

extern const struct wire_message registration_message, registration_answer_message;

/* Read doc, borrowed. Returns 0, -EPROTO of a version that is not known, -EINVAL with every fault, -ENOMEM; *ret is
 * unchanged then. */
int registration_read(const json_t *doc, struct registration *ret, struct merr *err);
json_t *registration_write(const struct registration *r); /* new; NULL without memory. Of this program's version. */
void registration_clear(struct registration *r);

int registration_answer_read(const json_t *doc, struct registration_answer *ret, struct merr *err);
json_t *registration_answer_write(const struct registration_answer *a);

#endif
