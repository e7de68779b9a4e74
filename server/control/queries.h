/* queries - the parameters of each route that takes some, for the table of routes
 *
 * api/openapi.yaml describes the same ones; a test holds both together.
 */
#ifndef MUSTER_SERVER_QUERIES_H
#define MUSTER_SERVER_QUERIES_H

#include "server/http/query.h"

extern const struct query_parameter queries_put_bundle[];
extern const struct query_parameter queries_submit[], queries_jobs[], queries_audit[], queries_job_events[];
extern const struct query_parameter queries_events[], queries_logs[], queries_retry[], queries_usage[];
extern const struct query_parameter queries_metrics[], queries_series[], queries_ranks[], queries_nodes[],
    queries_drain[], queries_enroll[];
extern const struct query_parameter queries_node_series[], queries_cluster_series[];
extern const struct query_parameter queries_assignments[], queries_keys[], queries_put_key[], queries_exec[];

#endif
