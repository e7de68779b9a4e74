#include "server/cluster/health.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/utf8.h"

#define DAY_US (INT64_C(86400) * 1000000)
#define HALF_LIFE_DAYS 7.0
#define GUILTY 0.99 /* one incident, also a few hours later */
#define ABSOLVED 0.3
#define PASSES 2      /* tests in a row that let a node serve again */
#define LEMON_LEAST 3 /* incidents */
#define LEMON_P 1e-3  /* by chance less often than that */
#define TERM_US (30 * DAY_US)
#define TERMS_MOST 3
#define COUNTED_MILLI 100 /* an incident of less is none: the node was only there */

const char *const health_state_names[HEALTH_STATES] = {"well",    "suspect",   "draining", "quarantined",
                                                       "testing", "probation", "repair",   "drained"};
const char *const health_check_names[HEALTH_CHECKS] = {"well", "no-work", "drain"};

/* --- evidence ---------------------------------------------------------------------------------------- */

bool health_blame(struct health *h, const struct health_incident *what)
{
    struct health_incident *last = h->n_incidents > 0 ? &h->incident[h->n_incidents - 1] : NULL;

    if (last && what->at_us - last->at_us < HEALTH_APART_US && what->at_us >= last->at_us) {
        if (what->milli > last->milli) { /* one incident, of which more is known now */
            last->milli = what->milli;
            last->user = what->user == 0 ? 0 : last->user;
            last->silent = what->silent;
        }
        return false;
    }
    if (h->n_incidents == HEALTH_KEPT)
        memmove(h->incident, h->incident + 1, --h->n_incidents * sizeof(h->incident[0]));
    h->incident[h->n_incidents++] = *what;
    return true;
}

void health_forgive_silence(struct health *h, int64_t since_us)
{
    size_t kept = 0;

    for (size_t i = 0; i < h->n_incidents; i++)
        if (!h->incident[i].silent || h->incident[i].at_us < since_us)
            h->incident[kept++] = h->incident[i];
    h->n_incidents = kept;
}

double health_score(const struct health *h, int64_t now_us)
{
    double score = 0;

    for (size_t i = 0; i < h->n_incidents; i++) {
        double days = (double)(now_us - h->incident[i].at_us) / DAY_US;

        score += h->incident[i].milli / 1e3 * exp2(-(days > 0 ? days : 0) / HALF_LIFE_DAYS);
    }
    return score;
}

static bool counts(const struct health_incident *i, int64_t now_us)
{
    return now_us - i->at_us < HEALTH_WINDOW_US && i->milli >= COUNTED_MILLI;
}

int health_incidents(const struct health *h, int64_t now_us)
{
    int n = 0;

    for (size_t i = 0; i < h->n_incidents; i++)
        n += counts(&h->incident[i], now_us);
    return n;
}

double health_days(const struct health *h, int64_t now_us)
{
    int64_t us = now_us - h->known_us;

    return (double)(us < 0 ? 0 : us < HEALTH_WINDOW_US ? us : HEALTH_WINDOW_US) / DAY_US;
}

/* Whether what is counted is of two users, or of the hardware itself. */
static bool has_witnesses(const struct health *h, int64_t now_us)
{
    uint64_t user = 0;

    for (size_t i = 0; i < h->n_incidents; i++) {
        const struct health_incident *k = &h->incident[i];

        if (!counts(k, now_us))
            continue;
        if (k->user == 0 || (user != 0 && k->user != user))
            return true;
        user = k->user;
    }
    return false;
}

/* How likely so many incidents or more are where `mean` are to be expected. */
static double tail(double mean, int n)
{
    double term = exp(-mean), below = 0;

    for (int i = 0; i < n; i++) {
        below += term;
        term *= mean / (i + 1);
    }
    return below < 1 ? 1 - below : 0;
}

bool health_is_guilty(const struct health *h, double rate_a_day, int64_t now_us, char *ret, size_t size)
{
    double score = health_score(h, now_us), days = health_days(h, now_us);
    int n = health_incidents(h, now_us);

    if (!has_witnesses(h, now_us))
        return false;
    if (n >= LEMON_LEAST && tail(rate_a_day * days, n) < LEMON_P) {
        (void)snprintf(ret, size, "%d incidents in %.1f days, and others of the cluster have %.2g a day", n, days,
                       rate_a_day);
        return true;
    }
    if (score < GUILTY)
        return false;
    (void)snprintf(ret, size, "%d incident%s with a score of %.2f", n, n == 1 ? "" : "s", score);
    return true;
}

/* --- states ------------------------------------------------------------------------------------------ */

bool health_is_out(const struct health *h)
{
    return h->state != HEALTH_WELL && h->state != HEALTH_SUSPECT && h->state != HEALTH_PROBATION;
}

bool health_is_shy(const struct health *h)
{
    return h->state == HEALTH_SUSPECT || h->state == HEALTH_PROBATION;
}

void health_set(struct health *h, enum health_state state, const char *reason, int64_t now_us)
{
    char copy[HEALTH_REASON_MAX];

    utf8_copy(copy, sizeof(copy), reason); /* it may be its own */
    memcpy(h->reason, copy, sizeof(h->reason));
    h->state = state;
    h->since_us = now_us;
    h->until_us = state == HEALTH_SUSPECT     ? now_us + HEALTH_SUSPECT_US
                  : state == HEALTH_PROBATION ? now_us + HEALTH_PROBATION_US
                                              : 0;
    h->by_check = false;
}

void health_convict(struct health *h, const char *reason, int64_t now_us)
{
    size_t recent = 0;
    int64_t hold_us = HEALTH_HOLD_US;

    if (h->n_terms == HEALTH_TERMS)
        memmove(h->term_us, h->term_us + 1, --h->n_terms * sizeof(h->term_us[0]));
    h->term_us[h->n_terms++] = now_us;
    for (size_t i = 0; i < h->n_terms; i++)
        recent += now_us - h->term_us[i] < TERM_US;
    for (size_t i = 1; i < recent && hold_us < HEALTH_HOLD_MAX_US; i++)
        hold_us *= 2;
    health_set(h, recent >= TERMS_MOST ? HEALTH_REPAIR : HEALTH_DRAINING, reason, now_us);
    h->until_us = h->state == HEALTH_DRAINING ? now_us + hold_us : 0;
    h->passed = 0;
}

void health_forgive(struct health *h, int64_t now_us)
{
    h->n_incidents = h->n_terms = 0;
    health_set(h, HEALTH_WELL, "", now_us);
}

bool health_tick(struct health *h, bool empty, int64_t now_us)
{
    enum health_state was = h->state;

    if (was == HEALTH_DRAINING && empty && !h->by_check)
        h->state = HEALTH_QUARANTINED;
    else if (was == HEALTH_QUARANTINED && now_us >= h->until_us)
        h->state = HEALTH_TESTING;
    else if (health_is_shy(h) && now_us >= h->until_us)
        health_set(h, HEALTH_WELL, "", now_us);
    return h->state != was;
}

bool health_tested(struct health *h, bool passed, const char *why, int64_t now_us)
{
    char reason[HEALTH_REASON_MAX], words[200];

    if (h->state != HEALTH_TESTING)
        return false;
    if (!passed) {
        utf8_copy(words, sizeof(words), why);
        (void)snprintf(reason, sizeof(reason), "it failed its test: %s", words);
        health_set(h, HEALTH_REPAIR, reason, now_us);
        return true;
    }
    h->passed++;
    for (size_t i = 0; i < h->n_incidents; i++) /* each test answers half of what is left */
        h->incident[i].milli /= 2;
    if (h->passed < PASSES || health_score(h, now_us) > ABSOLVED)
        return false;
    health_set(h, HEALTH_PROBATION, h->reason, now_us);
    return true;
}

bool health_checked(struct health *h, enum health_check check, const char *reason, int64_t now_us)
{
    char words[HEALTH_REASON_MAX];

    utf8_copy(words, sizeof(words), reason);
    if (check == h->check && strcmp(words, h->check_reason) == 0)
        return false;
    if (check != h->check)
        h->check_since_us = now_us;
    h->check = check;
    memcpy(h->check_reason, words, sizeof(h->check_reason));
    if (check == HEALTH_CHECK_DRAIN && !health_is_out(h)) {
        health_set(h, HEALTH_DRAINING, h->check_reason, now_us);
        h->by_check = true;
    } else if (check != HEALTH_CHECK_DRAIN && h->by_check) {
        health_set(h, HEALTH_WELL, "", now_us);
    }
    return true;
}

void health_shift(struct health *h, int64_t by_us)
{
    int64_t *at[] = {&h->since_us, &h->until_us, &h->known_us, &h->check_since_us};

    for (size_t i = 0; i < sizeof(at) / sizeof(at[0]); i++)
        *at[i] += *at[i] > 0 ? by_us : 0;
    for (size_t i = 0; i < h->n_incidents; i++)
        h->incident[i].at_us += by_us;
    for (size_t i = 0; i < h->n_terms; i++)
        h->term_us[i] += by_us;
}

/* --- as JSON ----------------------------------------------------------------------------------------- */

json_t *health_record(const struct health *h)
{
    json_t *incidents = json_array(), *terms = json_array();

    for (size_t i = 0; i < h->n_incidents; i++)
        (void)json_array_append_new(incidents, json_pack("[I, I, i, b]", (json_int_t)h->incident[i].user,
                                                         (json_int_t)h->incident[i].at_us, h->incident[i].milli,
                                                         h->incident[i].silent));
    for (size_t i = 0; i < h->n_terms; i++)
        (void)json_array_append_new(terms, json_integer(h->term_us[i]));
    return json_pack("{s:s, s:I, s:I, s:s, s:I, s:o, s:o, s:i, s:b}", "state", health_state_names[h->state], "since_us",
                     (json_int_t)h->since_us, "until_us", (json_int_t)h->until_us, "reason", h->reason, "known_us",
                     (json_int_t)h->known_us, "incidents", incidents, "terms", terms, "passed", h->passed, "by_check",
                     h->by_check);
}

static int64_t time_in(const json_t *o, const char *key)
{
    json_int_t at = json_integer_value(json_object_get(o, key));

    return at > 0 && at < INT64_MAX / 2 ? at : 0;
}

void health_load(struct health *h, const json_t *o)
{
    const char *state = json_string_value(json_object_get(o, "state"));
    const char *reason = json_string_value(json_object_get(o, "reason"));
    const json_t *list = json_object_get(o, "incidents");

    *h = (struct health){.n_incidents = 0};
    for (int i = 0; state && i < HEALTH_STATES; i++)
        if (strcmp(state, health_state_names[i]) == 0)
            h->state = (enum health_state)i;
    h->since_us = time_in(o, "since_us");
    h->until_us = time_in(o, "until_us");
    h->known_us = time_in(o, "known_us");
    utf8_copy(h->reason, sizeof(h->reason), reason ? reason : "");
    for (size_t i = 0; i < json_array_size(list) && h->n_incidents < HEALTH_KEPT; i++) {
        const json_t *one = json_array_get(list, i);
        json_int_t at = json_integer_value(json_array_get(one, 1)), milli = json_integer_value(json_array_get(one, 2));

        if (at > 0 && at < INT64_MAX / 2 && milli >= 0 && milli <= 1000)
            h->incident[h->n_incidents++] =
                (struct health_incident){.user = (uint64_t)json_integer_value(json_array_get(one, 0)),
                                         .at_us = at,
                                         .milli = (int)milli,
                                         .silent = json_is_true(json_array_get(one, 3))};
    }
    list = json_object_get(o, "terms");
    for (size_t i = 0; i < json_array_size(list) && h->n_terms < HEALTH_TERMS; i++) {
        json_int_t at = json_integer_value(json_array_get(list, i));

        if (at > 0 && at < INT64_MAX / 2)
            h->term_us[h->n_terms++] = at;
    }
    h->passed = json_integer_value(json_object_get(o, "passed")) > 0;
    h->by_check = json_is_true(json_object_get(o, "by_check"));
}

static json_t *time_json(int64_t wall_us)
{
    char text[CLOCK_RFC3339_MAX];

    if (wall_us == 0)
        return json_null();
    clock_rfc3339(wall_us, text);
    return json_string(text);
}

json_t *health_view(const struct health *h, int64_t now_us)
{
    double score = health_score(h, now_us);

    return json_pack("{s:s, s:s, s:o, s:o, s:f, s:i, s:{s:s, s:s, s:o}}", "state", health_state_names[h->state],
                     "reason", h->reason, "since", time_json(h->since_us), "until", time_json(h->until_us), "score",
                     score < 0.005 ? 0 : round(score * 100) / 100, "incidents", health_incidents(h, now_us), "check",
                     "level", health_check_names[h->check], "reason", h->check_reason, "since",
                     time_json(h->check_since_us));
}
