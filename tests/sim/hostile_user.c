/* What a hostile user does. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/hostile_priv.h"

void hostile_user_hears(struct actor *a, uint64_t job)
{
    for (size_t i = 0; i < a->n_jobs; i++)
        if (a->jobs[i] == job)
            return;
    a->jobs[a->n_jobs < HOSTILE_JOBS ? a->n_jobs++ : hostile_draw(a->h, HOSTILE_JOBS)] = job;
}

static void submit(struct actor *a)
{
    bool mine = hostile_draw(a->h, 3) > 0;
    char body[512], key[24];

    (void)snprintf(body, sizeof(body),
                   "{\"name\": \"m%d\", \"priority\": 100, \"devices\": {\"min\": 1, \"max\": 1, \"classes\": [%s]}, "
                   "\"command\": {\"argv\": [\"play\", \"%zu\", \"%zu\"], \"grace_s\": 1}, \"retry\": {\"max\": %zu}}",
                   a->calls, mine ? "\"" HOSTILE_CLASS "\"" : "", hostile_draw(a->h, 10000), hostile_draw(a->h, 3),
                   hostile_draw(a->h, 3));
    (void)snprintf(key, sizeof(key), "key-%zu", hostile_draw(a->h, 200)); /* honest users' keys are like these */
    hostile_call(a, ROLE_USER, "POST", "/v1/jobs", body, hostile_draw(a->h, 2) ? key : NULL, HOSTILE_MINE);
}

/* Something to a job, own or not: a success is about an own one. */
static void act_on(struct actor *a, uint64_t job)
{
    static const char *const acts[] = {"cancel", "cancel", "cancel", "suspend", "resume", "checkpoint", ""};
    const char *act = acts[hostile_draw(a->h, 7)];
    char target[64];

    (void)snprintf(target, sizeof(target), "/v1/jobs/j%" PRIu64 "%s%s", job, *act ? "/" : "", act);
    hostile_call(a, ROLE_USER, *act ? "POST" : "PATCH", target,
                 *act ? NULL : "{\"priority\": 0, \"devices\": {\"min\": 1, \"max\": 1}}", NULL, HOSTILE_MINE);
}

/* What is an administrator's or an agent's. */
static void out_of_place(struct actor *a)
{
    static const struct {
        const char *method, *target, *body;
    } asks[] = {
        {"POST", "/v1/nodes/n00000/drain", NULL},
        {"DELETE", "/v1/nodes/n00001", NULL},
        {"PUT", "/v1/projects/tight", "{\"quota\": 1000, \"borrow\": -1}"},
        {"PUT", "/v1/projects/default", "{\"quota\": 0, \"borrow\": 0}"},
        {"POST", "/v1/tokens", "{\"user\": \"mallory\", \"role\": \"admin\"}"},
        {"GET", "/v1/tokens", NULL},
        {"PUT", "/v1/projects/" HOSTILE_NOT_IN "/members/" HOSTILE_USER, "{\"role\": \"manager\"}"},
        {"DELETE", "/v1/projects/" HOSTILE_NOT_IN "/members/alice", NULL},
        {"DELETE", "/v1/projects/" HOSTILE_NOT_IN, NULL},
        {"GET", "/v1/audit", NULL},
        {"GET", "/v1/quarantine", NULL},
        {"DELETE", "/v1/quarantine/j1", NULL},
        {"POST", "/v1/nodes/n00000/enroll", NULL},
        {"POST", "/v1/agents/join", "{\"node\": \"n00000\", \"code\": \"AAAA-AAAA-AAAA\"}"},
        {"DELETE", "/v1/tokens/aaaaaaaaaaaa", NULL},
        {"GET", "/v1/cluster/snapshot", NULL},
        {"POST", "/v1/agents/register", "{}"},
        {"POST", "/v1/agents/n00000/report", "{\"incarnation\": \"n00000-1\", \"seq\": 1, \"runs\": []}"},
        {"GET", "/v1/agents/n00000/assignments?version=0&wait=0&incarnation=n00000-1", NULL},
        {"PUT", "/v1/agents/n00000/rendezvous/j1/1/key", "QUJD"},
        {"DELETE", "/v1/jobs/j1", NULL},
        {"PATCH", "/v1/nodes/../jobs/j1", "{}"},
    };
    size_t k = hostile_draw(a->h, sizeof(asks) / sizeof(asks[0]));

    hostile_call(a, ROLE_USER, asks[k].method, asks[k].target, asks[k].body, NULL, HOSTILE_NO);
}

/* Specs that nobody can mean. */
static void bad_spec(struct actor *a)
{
    static const char *const specs[] = {
        "{\"command\": {\"argv\": [\"play\"]}, \"devices\": {\"min\": 65537, \"max\": 65537}}",
        "{\"command\": {\"argv\": [\"play\"]}, \"devices\": {\"min\": 4, \"max\": 1}}",
        "{\"command\": {\"argv\": []}}",
        "{\"command\": {\"argv\": [\"play\"]}, \"priority\": 101}",
        "{\"command\": {\"argv\": [\"play\"]}, \"project\": \"../x\"}",
        "{\"command\": {\"argv\": [\"play\"]}, \"retry\": {\"max\": -1}}",
        "{\"command\": {\"argv\": [\"play\"]}, \"train\": {}}",
        "{\"train\": {\"steps\": 0}}",
        "{\"command\": {\"argv\": [\"play\"]}, \"project\": \"" HOSTILE_NOT_IN "\"}",
        "{\"command\": {\"argv\": [\"play\"]}, \"project\": \"" HOSTILE_NOT_IN "\", \"priority\": 100}",
    };

    if (hostile_draw(a->h, 2))
        hostile_call(a, ROLE_USER, "POST", "/v1/jobs", hostile_nonsense(a->h), "key-1", HOSTILE_MINE);
    else
        hostile_call(a, ROLE_USER, "POST", "/v1/jobs", specs[hostile_draw(a->h, sizeof(specs) / sizeof(specs[0]))],
                     NULL, HOSTILE_NO);
}

/* Jobs as wide as the limits let them be: refused here for their size, and taken only to fail as one job. */
static void wide_spec(struct actor *a)
{
    static const int devices[] = {17, 1024, 1025, 65536};
    char body[256];

    (void)snprintf(body, sizeof(body),
                   "{\"name\": \"wide\", \"devices\": {\"min\": 1, \"max\": %d}, "
                   "\"command\": {\"argv\": [\"play\", \"5000\", \"0\"], \"grace_s\": 1}}",
                   devices[hostile_draw(a->h, 4)]);
    hostile_call(a, ROLE_USER, "POST", "/v1/jobs", body, NULL, HOSTILE_MINE);
}

/* Many at once: of the jobs that a selector names, the caller's own alone are meant. */
static void act_on_many(struct actor *a)
{
    static const char *const bodies[] = {
        "{\"selector\": {\"user\": \"alice\"}}",
        "{\"selector\": {\"state\": \"active\"}}",
        "{\"selector\": {\"project\": \"tight\", \"state\": \"queued,running\"}}",
        "{\"selector\": {\"name\": \"u\"}, \"dry_run\": true}",
        "{\"selector\": {}}",
        "{\"selector\": {\"user\": \"" HOSTILE_USER "\"}}",
    };

    hostile_call(a, ROLE_USER, "POST", "/v1/jobs:cancel", bodies[hostile_draw(a->h, 6)], NULL, HOSTILE_ANY);
}

/* A secret of one's own, again and again, and too large. */
static void secrets(struct actor *a)
{
    static char large[40000];
    char target[64], body[40064];

    memset(large, 'x', sizeof(large) - 1);
    (void)snprintf(target, sizeof(target), "/v1/secrets/s%zu", hostile_draw(a->h, 100));
    (void)snprintf(body, sizeof(body), "{\"value\": \"%.*s\"}", hostile_draw(a->h, 4) ? 100 : 39999, large);
    hostile_call(a, ROLE_USER, hostile_draw(a->h, 4) ? "PUT" : "DELETE", target, body, NULL, HOSTILE_ANY);
}

static void read_much(struct actor *a)
{
    static const char *const targets[] = {
        "/v1/jobs?limit=1000&state=active",
        "/v1/jobs?limit=1000&user=alice",
        "/v1/jobs?cursor=nonsense",
        "/v1/jobs?limit=99999999999999999999",
        "/v1/events?limit=1000",
        "/v1/events?since=18446744073709551615",
        "/v1/nodes?limit=1000&cursor=zzz",
        "/v1/cluster",
        "/v1/jobs/j18446744073709551616",
        "/v1/jobs/j0/events",
        "/v1/secrets",
        "/v1/projects/%2e%2e",
    };

    hostile_call(a, ROLE_USER, "GET", targets[hostile_draw(a->h, sizeof(targets) / sizeof(targets[0]))], NULL, NULL,
                 HOSTILE_ANY);
}

void hostile_user_acts(struct actor *a)
{
    switch (hostile_draw(a->h, 12)) {
    case 0:
    case 1:
        submit(a);
        break;
    case 2:
    case 3:
    case 4:
        if (a->n_jobs)
            act_on(a, a->jobs[hostile_draw(a->h, a->n_jobs)]);
        break;
    case 5:
    case 6:
        act_on(a, 1 + hostile_draw(a->h, 120));
        break;
    case 7:
        out_of_place(a);
        break;
    case 8:
        if (hostile_draw(a->h, 8) == 0)
            wide_spec(a);
        else
            bad_spec(a);
        break;
    case 9:
        act_on_many(a);
        break;
    case 10:
        secrets(a);
        break;
    default:
        read_much(a);
    }
}
