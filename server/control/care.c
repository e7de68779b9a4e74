#include "server/control/care.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/utf8.h"
#include "server/cluster/fleet.h"
#include "server/control/change.h"
#include "server/control/events.h"
#include "server/control/state.h"

#define SUSPECT_MILLI 600 /* of an incident that makes a node suspect for a while */
#define SILENCE_US INT64_C(300000000)
#define CHECK_APART_US INT64_C(900000)
#define TEST_US INT64_C(180000000)
#define TEST_PAUSE_US INT64_C(60000000) /* between two tests that a node has to pass */

static const char *const rates[] = {"memory_gb_s", "gemm_gflop_s", "disk_mb_s", "loopback_gb_s"};
#define RATES (sizeof(rates) / sizeof(rates[0]))

/* --- changes ----------------------------------------------------------------------------------------- */

/* The node's state is another now: jobs leave or come, it is stored and told. */
static void follow(struct core *c, struct node *n, const char *actor)
{
    char text[HEALTH_REASON_MAX + 128];
    const char *state = health_state_names[n->health.state];

    n->drain = health_is_out(&n->health);
    c->schedule_wanted = true;
    change_node(c, n);
    (void)snprintf(text, sizeof(text), "node %s is %s%s%s", n->name, state, *n->health.reason ? ": " : "",
                   n->health.reason);
    log_warn("%s", text);
    events_note(c, 0, "", "node", 0, actor, n->health.state == HEALTH_HELD ? "draining" : state, text,
                json_pack("{s:s, s:s, s:s}", "node", n->name, "state", state, "reason", n->health.reason));
}

static void set(struct core *c, struct node *n, enum health_state state, const char *reason, const char *actor)
{
    health_set(&n->health, state, reason, c->now.wall_us);
    follow(c, n, actor);
}

/* Whether the node is guilty by all that is known; then it is taken out, or what nodes share is suspected instead. */
static bool judge(struct core *c, struct node *n, const char *last)
{
    double rate = fleet_rate(&c->cluster, n, c->now.wall_us);
    char why[160], brief[140], text[HEALTH_REASON_MAX];

    if (!health_is_guilty(&n->health, rate, c->now.wall_us, why, sizeof(why)))
        return false;
    utf8_copy(brief, sizeof(brief), last);
    (void)snprintf(text, sizeof(text), "%s, the last one: %s", why, brief);
    if (fleet_may_convict(&c->cluster, n, c->now.wall_us)) {
        health_convict(&n->health, text, c->now.wall_us);
        follow(c, n, "scheduler");
        return true;
    }
    if (n->health.state == HEALTH_SUSPECT)
        return true;
    (void)snprintf(text, sizeof(text), "%s; it is not taken out, since others %s: look at what nodes share", why,
                   fleet_rack_fails(&c->cluster, n, c->now.wall_us) ? "of its rack were within the hour"
                                                                    : "were within the hour or are needed");
    set(c, n, HEALTH_SUSPECT, text, "scheduler");
    return true;
}

static void charge(struct core *c, struct node *n, const struct health_incident *what, const char *why)
{
    bool is_new = health_blame(&n->health, what);

    change_node(c, n);
    if (!judge(c, n, why) && is_new && what->milli >= SUSPECT_MILLI && n->health.state == HEALTH_WELL)
        set(c, n, HEALTH_SUSPECT, why, "scheduler");
}

void care_blame(struct core *c, const struct entry *e, const char *node, enum act_class class_, size_t suspects,
                const char *why)
{
    struct node *n = cluster_node(&c->cluster, node);
    struct health_incident what = {.user = hash_xxh3(e->job.user, strlen(e->job.user)) | 1,
                                   .at_us = c->now.wall_us,
                                   .milli = act_blame(class_) * 10 / (int)(suspects > 0 ? suspects : 1),
                                   .silent = class_ == ACT_LOST};

    if (!n || n->drain || what.milli == 0)
        return;
    if (class_ == ACT_LOST && fleet_is_silent(&c->cluster, n, c->now.mono_us, NULL))
        care_lost(c, n);
    else
        charge(c, n, &what, why);
}

void care_accuse(struct core *c, struct node *n, int milli, const char *why)
{
    if (!n->drain && milli > 0)
        charge(c, n, &(struct health_incident){.at_us = c->now.wall_us, .milli = milli}, why);
}

/* --- silence ----------------------------------------------------------------------------------------- */

void care_lost(struct core *c, struct node *n)
{
    char text[HEALTH_REASON_MAX];
    size_t silent;

    if (!fleet_is_silent(&c->cluster, n, c->now.mono_us, &silent))
        return;
    for (size_t i = 0; i < c->cluster.n_nodes; i++) {
        struct node *other = c->cluster.nodes[i];

        if (!fleet_silent_together(n, other, c->now.mono_us))
            continue;
        health_forgive_silence(&other->health, c->now.wall_us - SILENCE_US);
        if (other->health.state != HEALTH_WELL)
            continue;
        (void)snprintf(text, sizeof(text), "it went silent together with %zu others: look at what they share",
                       silent - 1);
        set(c, other, HEALTH_SUSPECT, text, "scheduler");
        other->health.until_us = 0; /* until it is heard of */
    }
}

void care_back(struct core *c, struct node *n)
{
    if (n->health.state == HEALTH_SUSPECT && n->health.until_us == 0)
        set(c, n, HEALTH_WELL, "", "scheduler");
}

/* --- people ------------------------------------------------------------------------------------------ */

void care_hold(struct core *c, struct node *n, const char *actor, const char *reason)
{
    char text[HEALTH_REASON_MAX], words[200];

    utf8_copy(words, sizeof(words), reason);
    (void)snprintf(text, sizeof(text), "%.80s%s%s", actor, *words ? ": " : "", words);
    set(c, n, HEALTH_HELD, text, actor);
}

void care_forgive(struct core *c, struct node *n, const char *actor)
{
    bool out = n->drain || health_is_shy(&n->health);

    health_forgive(&n->health, c->now.wall_us);
    n->drain_by_us = 0;
    change_node(c, n);
    if (!out)
        return;
    n->drain = false;
    c->schedule_wanted = true;
    events_note(c, 0, "", "node", 0, actor, "undrained", n->name,
                json_pack("{s:s, s:s}", "node", n->name, "state", "ready"));
}

/* --- tests ------------------------------------------------------------------------------------------- */

int care_test(struct core *c, struct node *n, const char *actor, struct merr *err)
{
    bool idle = n->n_slots == 0;

    if (n->test.id != 0)
        return merr_set(err, -EBUSY, "a test of node '%s' is under way", n->name);
    if (n->contact != NODE_READY || !n->registered)
        return merr_set(err, -ENOTCONN, "node '%s' is silent and cannot be tested", n->name);
    for (size_t k = 0; k < n->n_slots; k++)
        idle = idle || n->slots[k].job == 0;
    if (!idle)
        return merr_set(err, -EBUSY,
                        "every device of node '%s' is busy: a test would slow its jobs down; drain it first", n->name);
    n->test.id = c->now.wall_us;
    n->test.deadline_us = c->now.mono_us + TEST_US;
    events_note(c, 0, "", "node", 0, actor, "test-begun", n->name, json_pack("{s:s}", "node", n->name));
    return 0;
}

/* What came of it (taken over), with what is to be said beside the class. */
static void finish(struct core *c, struct node *n, json_t *result)
{
    const char *why = json_string_value(json_object_get(result, "why"));
    bool passed = json_is_true(json_object_get(result, "passed"));
    char text[HEALTH_REASON_MAX];
    int64_t asked = n->test.id;
    double median;

    utf8_copy(text, sizeof(text), why ? why : "");
    for (size_t i = 0; passed && i < RATES; i++) {
        if (!fleet_is_behind(&c->cluster, n, result, rates[i], &median))
            continue;
        passed = false;
        (void)snprintf(text, sizeof(text), "%s is %.3g, and of others of its class %.3g", rates[i],
                       json_number_value(json_object_get(result, rates[i])), median);
    }
    (void)json_object_set_new(result, "passed", json_boolean(passed));
    (void)json_object_set_new(result, "why", json_string(text));
    (void)json_object_set_new(result, "at", cluster_time(c->now.wall_us));
    (void)json_object_set_new(result, "id", json_integer(asked));
    json_decref(n->test.result);
    n->test.result = result;
    n->test.id = 0;
    n->test.deadline_us = c->now.mono_us + TEST_PAUSE_US;
    change_node(c, n);
    events_note(c, 0, "", "node", 0, "scheduler", passed ? "test-passed" : "test-failed", *text ? text : n->name,
                json_pack("{s:s, s:O}", "node", n->name, "test", result));
    if (health_tested(&n->health, passed, text, c->now.wall_us))
        follow(c, n, "scheduler");
}

/* Of what the agent sends the fields that are known, and no more of them than that. New. */
static json_t *read_result(const json_t *test)
{
    const char *why = json_string_value(json_object_get(test, "why"));
    json_t *result = json_pack("{s:b, s:s}", "passed", json_is_true(json_object_get(test, "passed")), "why",
                               why && strlen(why) < HEALTH_REASON_MAX ? why : "");

    for (size_t i = 0; result && i < RATES; i++) {
        const json_t *rate = json_object_get(test, rates[i]);

        if (json_is_number(rate) && json_number_value(rate) >= 0)
            (void)json_object_set_new(result, rates[i], json_real(json_number_value(rate)));
    }
    return result;
}

void care_report(struct core *c, struct node *n, const json_t *body)
{
    const json_t *health = json_object_get(body, "health"), *test = json_object_get(body, "test");
    const char *level = json_string_value(json_object_get(health, "level"));
    const char *reason = json_string_value(json_object_get(health, "reason"));
    enum health_state was = n->health.state;
    json_t *result;

    for (int i = 0; level && i < HEALTH_CHECKS; i++) {
        if (strcmp(level, health_check_names[i]) != 0 || c->now.mono_us < n->check_after_us ||
            !health_checked(&n->health, (enum health_check)i, reason ? reason : "", c->now.wall_us))
            continue;
        n->check_after_us = c->now.mono_us + CHECK_APART_US; /* an agent that says something else each time */
        change_node(c, n);
        c->schedule_wanted = true;
        events_note(c, 0, "", "node", 0, "scheduler", "check", n->health.check_reason,
                    json_pack("{s:s, s:s, s:s}", "node", n->name, "level", level, "reason", n->health.check_reason));
        if (n->health.state != was)
            follow(c, n, "scheduler");
        break;
    }
    if (n->test.id != 0 && json_integer_value(json_object_get(test, "id")) == n->test.id &&
        (result = read_result(test)))
        finish(c, n, result);
}

/* --- time -------------------------------------------------------------------------------------------- */

static bool is_empty(const struct node *n)
{
    for (size_t k = 0; k < n->n_slots; k++)
        if (n->slots[k].job != 0)
            return false;
    return true;
}

static void look_after(struct core *c, struct node *n)
{
    bool ready = n->contact == NODE_READY && n->registered;
    enum health_state state = n->health.state;

    if ((state != HEALTH_SUSPECT || n->health.until_us > 0) && health_tick(&n->health, is_empty(n), c->now.wall_us))
        follow(c, n, "scheduler");
    if (n->test.id != 0 && !ready)
        n->test.id = 0; /* it has not failed: nobody was there to do it */
    if (n->test.id != 0 && c->now.mono_us >= n->test.deadline_us)
        finish(c, n, json_pack("{s:b, s:s}", "passed", 0, "why", "its agent did not tell of the test in time"));
    if (n->health.state == HEALTH_TESTING && n->test.id == 0 && ready && c->now.mono_us >= n->test.deadline_us)
        (void)care_test(c, n, "scheduler", NULL);
}

void care_tick(struct core *c)
{
    for (size_t i = 0; i < c->cluster.n_nodes; i++)
        look_after(c, c->cluster.nodes[i]);
}
