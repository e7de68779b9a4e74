#include "scheduler/diagnose/lag_priv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LINK_SLOWER 1.5
#define LINK_SPREADS 5
#define RATE_SLOWER 1.3 /* for each byte: that calls with more to send are longer says nothing */
#define LINK_SHARE 0.02 /* of the step, that a link takes more */
#define VOTE 0.6
#define VOTE_AHEAD 0.3

/* --- groups -------------------------------------------------------------------------------------------- */

/* Of some groups of a kind, from one on: the median of what their calls took at least. */
static void measure_least(const struct window *w, int kind, size_t n, size_t from, struct team *ret)
{
    float v[LAG_WINDOW][LAG_LANES];
    int got[LAG_LANES] = {0};

    for (size_t i = 0; i < LAG_LANES; i++)
        for (int at = 0; at < LAG_WINDOW; at++) {
            float us = i < n && ret[i].members > 1 ? w->least[kind][(from + i) * LAG_WINDOW + (size_t)at] : -1;

            v[at][i] = us >= 0 ? us : INFINITY; /* the last ones */
            got[i] += us >= 0;
        }
    lag_sort_lanes(v, LAG_WINDOW);
    for (size_t i = 0; i < n; i++)
        ret[i].least = got[i] >= STEPS_LEAST ? (v[(got[i] - 1) / 2][i] + v[got[i] / 2][i]) / 2 : -1;
}

static void measure_teams(struct lag *l, const struct window *w)
{
    for (int k = 0; k < LAG_KINDS; k++)
        for (size_t i = 0; i < l->teams[k]; i++) {
            struct team *t = &l->team[k][i];

            if (i % LAG_LANES == 0)
                measure_least(w, k, l->teams[k] - i < LAG_LANES ? l->teams[k] - i : LAG_LANES, i, t);
            t->most = t->kib = t->lack = 0;
            t->stretch = 1;
            t->lacking = false;
            t->linked = t->apart;
        }
    for (size_t i = 0; i < l->n; i++) {
        const struct told *t = &w->told[i];
        float by = t->counts > 0 ? 1 / t->counts : 0, stretch = 1 / (1 - l->withheld[i]);
        float lack = t->sum.cpu > 0 && t->sum.wall > 0 ? t->sum.starved / t->sum.wall : 0;

        if (by == 0)
            continue;
        for (int k = 0; k < LAG_KINDS; k++) {
            struct team *of = &l->team[k][l->place[i].team[k]];
            float us = t->sum.call[k] * by, kib = t->sum.kib * by;

            if (of->members < 2)
                continue;
            of->linked = of->linked || t->sum.cpu == 0;
            of->lack += lack; /* by turns, in a call or on the way to one: each turn holds up all of them */
            of->stretch = stretch > of->stretch ? stretch : of->stretch;
            of->most = us > of->most ? us : of->most;
            of->wall = t->sum.wall * by;
            of->kib = kib > of->kib ? kib : of->kib;
        }
    }
}

/* What a group's calls take when nobody is late, against what they usually take. */
static void judge_teams(struct lag *l)
{
    for (int k = 0; k < LAG_KINDS; k++)
        for (size_t i = 0; i < l->teams[k]; i++) {
            struct team *t = &l->team[k][i];
            float least, lack;
            bool hit;

            if (t->least < 0)
                continue;
            least = t->least; /* members that had no processor made them longer: by most of what is more? */
            lack = t->lack > t->lack_usual ? (t->lack - t->lack_usual) * t->wall : 0;
            least -= 2 * lack < least - t->usual ? lack : least - t->usual;
            hit = t->linked && t->windows >= PAST_LEAST && least > (float)LINK_SLOWER * t->stretch * t->usual &&
                  least - t->usual > (float)LINK_SHARE * t->wall && least - t->usual > LINK_SPREADS * t->spread &&
                  least * t->kib_usual >= (float)RATE_SLOWER * t->usual * t->kib;
            t->hits = (uint8_t)(t->hits << 1 | hit);
            if (!hit) {
                float weight = t->windows < PAST_LEAST ? 1.0f / (float)(t->windows + 1) : (float)PAST_WEIGHT;

                if (t->windows > 0)
                    t->spread += weight * (1.2533f * fabsf(t->least - t->usual) - t->spread);
                t->usual += weight * (t->least - t->usual);
                t->lack_usual += weight * (t->lack - t->lack_usual);
                t->kib_usual += weight * (t->kib - t->kib_usual);
                t->windows++;
            }
        }
}

/* P of section 2.2 of CCL-D, of the rank's group with the longest wait. */
void lag_find_lateness(const struct lag *l, const struct window *w, struct lag_finding *f)
{
    const struct told *told = &w->told[f->rank];
    bool slow = false; /* a group whose calls are long says more */
    float wait = 0;

    f->kind = LAG_KINDS;
    f->p = 1;
    for (int k = 0; k < LAG_KINDS; k++) {
        const struct team *t = &l->team[k][l->place[f->rank].team[k]];
        float late;

        if (t->members < 2 || t->least < 0 || told->counts == 0)
            continue;
        late = t->most - told->sum.call[k] / told->counts;
        f->late_us = late > f->late_us ? late : f->late_us;
        if (lag_twice(t->hits) < slow || (lag_twice(t->hits) == slow && t->most - t->least <= wait))
            continue;
        slow = lag_twice(t->hits);
        wait = t->most - t->least;
        f->kind = (enum lag_kind)k;
        f->p = t->most > t->usual ? wait / (t->most - t->usual) : 1;
        f->p = f->p > 1 ? 1 : f->p;
    }
}

void lag_measure_groups(struct lag *l, const struct window *w)
{
    measure_teams(l, w);
    judge_teams(l);
}

/* The node that most groups whose calls are long have in common, and the others do not; UINT32_MAX: none. */
static uint32_t vote(struct lag *l, int kind)
{
    float *slow = l->scratch, *all = l->sigmas, best = 0, next = 0;
    uint32_t node = UINT32_MAX;

    memset(slow, 0, l->n * sizeof(*slow));
    memset(all, 0, l->n * sizeof(*all));
    for (size_t i = 0; i < l->n; i++) {
        const struct team *t = &l->team[kind][l->place[i].team[kind]];

        all[l->place[i].node] += t->members > 1;
        slow[l->place[i].node] += t->members > 1 && lag_twice(t->hits);
    }
    for (uint32_t at = 0; at < l->n; at++) {
        float share = all[at] > 0 ? slow[at] / all[at] : 0;

        if (share > best) {
            next = best;
            best = share;
            node = at;
        } else if (share > next) {
            next = share;
        }
    }
    return best < (float)VOTE || best < next + (float)VOTE_AHEAD ? UINT32_MAX : node;
}

/* Groups whose calls have become long though nobody is late: news only when the first of them is found. */
void lag_judge_groups(struct lag *l, struct lag_verdict *v)
{
    for (size_t i = 0; i < l->n; i++)
        for (int k = 0; k < LAG_KINDS && l->past[i].lacks; k++)
            l->team[k][l->place[i].team[k]].lacking = true;
    for (int k = 0; k < LAG_KINDS; k++) {
        struct lag_finding f = {.class_ = LAG_LINK, .kind = (enum lag_kind)k};
        bool fresh = false, any = false, alone = true; /* all that is sent is of groups of this kind */

        for (int other = 0; other < LAG_KINDS; other++)
            alone = alone && (other == k || l->teams[other] == l->n);

        for (size_t i = 0; i < l->teams[k]; i++) {
            struct team *t = &l->team[k][i];
            bool slow = t->least >= 0 && lag_twice(t->hits) && !t->lacking;
            double factor = slow && t->usual > 0 ? (double)(t->least / t->usual) : 0;

            if (t->members < 2)
                continue;
            fresh = fresh || (slow && !t->slow);
            t->slow = slow || (t->slow && (t->hits & 7) != 0);
            any = any || t->slow;
            if (factor > f.factor) {
                f.factor = factor;
                f.rank = t->first;
                f.share = t->wall > 0 ? (double)((t->least - t->usual) / t->wall) : 0;
                f.kib_s = alone ? 1e6 * (double)(t->kib / t->least) : 0;
                f.kib_s_usual = alone ? 1e6 * (double)(t->kib_usual / t->usual) : 0;
                f.p = t->most > t->usual ? (double)((t->most - t->least) / (t->most - t->usual)) : 0;
            }
        }
        if (l->long_told[k] && !any) {
            l->long_told[k] = false;
            f.over = true;
            f.rank = l->long_rank[k];
            f.node = UINT32_MAX;
            lag_add(v, &f);
        }
        if (!fresh || l->long_told[k] || f.p >= LATE)
            continue;
        f.role = l->place[f.rank].role;
        f.node = vote(l, k);
        for (uint32_t i = (uint32_t)l->n; f.node != UINT32_MAX && i-- > 0;)
            f.rank = l->place[i].node == f.node ? i : f.rank;
        l->long_told[k] = true;
        l->long_rank[k] = f.rank;
        lag_add(v, &f);
    }
}
