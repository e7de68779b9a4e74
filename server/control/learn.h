/* learn - what runs and agents teach of jobs, devices and links, taken in: kept, told, and stored
 *
 * What is found is decided in server/cluster; here it is noted, put into the turn's batch and scheduled by.
 */
#ifndef MUSTER_SERVER_LEARN_H
#define MUSTER_SERVER_LEARN_H

#include <jansson.h>
#include <stdint.h>

#include "server/cluster/gpus.h"
#include "server/cluster/node.h"
#include "server/control/entry.h"

struct core;

/* A line of metrics of a generation of the job. */
void learn_metrics(struct core *c, struct entry *e, uint32_t generation, const json_t *line);

/* An event "device-test" of the job's run: how fast a rank's device is by itself. */
void learn_device_test(struct core *c, struct entry *e, const json_t *event);

/* An event "links" of the job's run: what one of its ranks measured. */
void learn_links(struct core *c, struct entry *e, const json_t *event);

/* "gpus" of a registration or a report; errors of GPUs are added to *ret. */
void learn_gpus(struct core *c, struct node *n, const json_t *body, struct gpus_errors *ret);

/* The node's slow devices are taken to be well, by whose word. */
void learn_forgive(struct core *c, struct node *n, const char *actor);

/* Idle slow devices are tried again when their time has come. */
void learn_tick(struct core *c);

#endif
