#include "server/control/queries.h"

#include "scheduler/plan/layout.h"

#define LIMIT QUERY_NUMBER("limit", 1, 1000) /* of a page */
#define WAIT QUERY_NUMBER("wait", 0, 60)     /* seconds of a long-poll */
#define END                                                                                                            \
    {                                                                                                                  \
        .name = NULL                                                                                                   \
    }

const struct query_parameter queries_submit[] = {QUERY_NUMBER("dry_run", 0, 1), END};
const struct query_parameter queries_jobs[] = {QUERY_TEXT("state"),
                                               QUERY_TEXT("project"),
                                               QUERY_TEXT("user"),
                                               QUERY_TEXT("label"),
                                               QUERY_TEXT("name~"),
                                               LIMIT,
                                               QUERY_TEXT("cursor"),
                                               QUERY_TEXT("fields"),
                                               QUERY_TEXT("array"),
                                               QUERY_TEXT("metric"),
                                               END};
const struct query_parameter queries_retry[] = {QUERY_TEXT("state"), END};
const struct query_parameter queries_audit[] = {
    QUERY_TEXT("user"), QUERY_TEXT("from"), QUERY_TEXT("to"), LIMIT, QUERY_NUMBER("cursor", 0, INT64_MAX), END};
const struct query_parameter queries_usage[] = {QUERY_TEXT("from"), QUERY_TEXT("to"), QUERY_TEXT("by"), END};
const struct query_parameter queries_job_events[] = {LIMIT, QUERY_NUMBER("cursor", 0, INT64_MAX), END};
const struct query_parameter queries_events[] = {LIMIT, QUERY_NUMBER("cursor", 0, INT64_MAX),
                                                 QUERY_NUMBER("changes", 0, 1), END};
const struct query_parameter queries_logs[] = {
    QUERY_NUMBER("rank", 0, PLAN_RANKS_MAX - 1),
    QUERY_NUMBER("generation", 1, INT32_MAX),
    QUERY_NUMBER("offset", 0, INT64_MAX),
    QUERY_NUMBER("tail", 0, INT32_MAX),
    QUERY_NUMBER("since_s", 1, INT32_MAX),
    QUERY_NUMBER("follow", 0, 1),
    QUERY_TEXT("grep"),
    QUERY_NUMBER("before", 1, INT64_MAX),
    END,
};
const struct query_parameter queries_metrics[] = {QUERY_TEXT("names"), QUERY_NUMBER("points", 0, 1000000), END};
const struct query_parameter queries_series[] = {QUERY_TEXT("names"), QUERY_NUMBER("from", 0, INT64_MAX),
                                                 QUERY_NUMBER("to", 0, INT64_MAX), QUERY_NUMBER("buckets", 1, 2000),
                                                 END};
const struct query_parameter queries_ranks[] = {QUERY_NUMBER("stage", 0, 1023), QUERY_NUMBER("rank", 0, 1023), END};
const struct query_parameter queries_nodes[] = {LIMIT, QUERY_TEXT("cursor"), END};
#define SPAN QUERY_NUMBER("from", 0, INT64_MAX), QUERY_NUMBER("to", 1, INT64_MAX), QUERY_NUMBER("buckets", 1, 1000)
const struct query_parameter queries_node_series[] = {SPAN, END};
const struct query_parameter queries_cluster_series[] = {SPAN, QUERY_NUMBER("limit", 1, 256), QUERY_TEXT("cursor"),
                                                         END};
const struct query_parameter queries_drain[] = {QUERY_NUMBER("deadline_s", 1, 86400), QUERY_TEXT("reason"), END};
const struct query_parameter queries_enroll[] = {QUERY_NUMBER("life_s", 1, 604800), END};
const struct query_parameter queries_assignments[] = {QUERY_NUMBER("version", 0, INT64_MAX), WAIT,
                                                      QUERY_TEXT("incarnation"), END};
const struct query_parameter queries_keys[] = {QUERY_NUMBER("since", 0, INT64_MAX), WAIT, QUERY_TEXT("incarnation"),
                                               END};
const struct query_parameter queries_put_bundle[] = {QUERY_NUMBER("size", 1, INT64_MAX),
                                                     QUERY_NUMBER("offset", 0, INT64_MAX), END};
const struct query_parameter queries_exec[] = {QUERY_TEXT("ticket"), END};
const struct query_parameter queries_put_key[] = {QUERY_TEXT("incarnation"), END};
