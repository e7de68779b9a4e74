#include "scheduler/diagnose/act.h"

#include <stdio.h>

#include "base/hash.h"

#define SECOND INT64_C(1000000)
#define DAY (86400 * SECOND)
#define WAIT_S 5
#define WAIT_MAX_S 300

struct row {
    enum act_verb first; /* where nothing speaks against another attempt */
    bool user;           /* it takes from the restarts for the job's own faults */
    bool infra;          /* it takes from the day's */
    bool spare;          /* it may have spares */
    bool counts;         /* an attempt that it ended says whether the job gets on */
    int moves;           /* of a run a day at most */
    int blame;
};

static const struct row rows[ACT_CLASSES] = {
    [ACT_USER] = {ACT_ELSEWHERE, .user = true, .counts = true, .blame = 0},
    [ACT_CRASH] = {ACT_IN_PLACE, .counts = true, .blame = 10},
    [ACT_STOPPED] = {ACT_IN_PLACE, .counts = true, .blame = 2},
    [ACT_LOST] = {ACT_ELSEWHERE, .infra = true, .spare = true, .blame = 30},
    [ACT_DEVICE] = {ACT_ELSEWHERE, .infra = true, .spare = true, .counts = true, .blame = 30},
    [ACT_NOT_ENTERED] = {ACT_IN_PLACE, .counts = true, .blame = 10},
    [ACT_DISORDER] = {ACT_IN_PLACE, .counts = true, .blame = 0},
    [ACT_IN_CALL] = {ACT_ELSEWHERE, .infra = true, .spare = true, .counts = true, .blame = 60},
    [ACT_PHASE] = {ACT_IN_PLACE, .counts = true, .blame = 2},
    [ACT_NUMERIC] = {ACT_ROLL_BACK, .counts = true, .blame = 0},
    [ACT_REPLICA] = {ACT_ROLL_BACK, .infra = true, .counts = true, .blame = 60},
    [ACT_SLOW] = {ACT_MOVE, .moves = 4, .blame = 30}, /* what one that hastens for nothing costs stays small */
    [ACT_SLOW_TESTED] = {ACT_MOVE, .moves = 4, .blame = 60},
    [ACT_SLOW_LINK] = {ACT_MOVE, .moves = 2, .blame = 30},
};

int act_blame(enum act_class class_)
{
    return rows[class_].blame;
}

bool act_takes_spare(enum act_class class_)
{
    return rows[class_].spare;
}

const char *act_verb_name(enum act_verb verb)
{
    static const char *const name[] = {"nothing", "in-place", "elsewhere", "roll-back", "move", "fail", "fail-user"};

    return name[verb];
}

/* None before the first restart; then from WAIT_S on twice as long each time, and between half and one and a half of
 * that, so that many jobs of one failure do not come back at once. */
static int64_t wait_us(int in_a_row, uint64_t incident)
{
    int64_t s = in_a_row == 0 ? 0 : in_a_row > 6 ? WAIT_MAX_S : (int64_t)WAIT_S << (in_a_row - 1);
    double share = 0.5 + (double)(hash_xxh3(&incident, sizeof(incident)) >> 11) * 0x1p-53;

    return (int64_t)((double)(s > WAIT_MAX_S ? WAIT_MAX_S : s) * SECOND * share);
}

static bool is_new_day(int64_t since_us, int64_t now_us)
{
    return now_us - since_us >= DAY || now_us < since_us;
}

/* Two nodes that are lost at once are two incidents where the second attempt was placed on one of them before its
 * silence was noticed: only the first incident speaks against the job. */
static bool was_gone_before(const struct act_incident *i)
{
    return i->heard_us > 0 && i->began_us - i->heard_us >= ACT_GONE_US;
}

/* What the attempt adds to the history, but for the restarts that it takes. */
static void remember(const struct act_history *h, const struct act_incident *i, struct act_history *then)
{
    const struct row *row = &rows[i->class_];
    bool past = i->step >= 0 && i->step > i->saved, healthy = i->now_us - i->began_us >= ACT_HEALTHY_US;

    *then = *h;
    then->incident = i->id;
    then->in_a_row = healthy || past ? 0 : h->in_a_row;
    if (past)
        then->stuck = 0;
    else if (row->counts && i->step >= 0 && (i->class_ != ACT_CRASH || i->signature != 0))
        then->stuck++;
    if (i->class_ == ACT_LOST)
        then->soon_lost = i->now_us - i->began_us < ACT_SOON_US ? h->soon_lost + !was_gone_before(i) : 0;
    else if (i->now_us - i->began_us >= ACT_SOON_US)
        then->soon_lost = 0;
    if (row->infra && is_new_day(h->infra_since_us, i->now_us)) {
        then->infra_since_us = i->now_us;
        then->infra = 0;
    }
    then->infra += row->infra;
    then->disorders = (healthy ? 0 : h->disorders) + (i->class_ == ACT_DISORDER);
    then->roll_backs = (healthy ? 0 : h->roll_backs) + (row->first == ACT_ROLL_BACK);
    then->signature = i->signature;
    then->signature_step = i->step;
    then->node = i->node;
}

/* The program ended in the same way at the same step as before: where that is not its own doing by its class, on two
 * nodes. */
static bool repeats(const struct act_history *h, const struct act_incident *i)
{
    return i->signature != 0 && i->step >= 0 && i->signature == h->signature && i->step == h->signature_step &&
           (i->class_ == ACT_USER || ((i->class_ == ACT_CRASH || i->class_ == ACT_NUMERIC) && i->node != h->node));
}

/* Whether the history speaks against another attempt, and why. */
static bool is_hopeless(const struct act_history *h, const struct act_incident *i, struct act *ret)
{
    const struct act_history *then = &ret->then;

    ret->verb = ACT_FAIL;
    if (repeats(h, i)) {
        ret->verb = ACT_FAIL_USER;
        (void)snprintf(ret->why, sizeof(ret->why),
                       i->class_ == ACT_NUMERIC && i->replicas
                           ? "step %lld gives the same with this rank on another node: it is the data or the model, or "
                             "a device of another replica, whose gradients are added to its"
                       : i->class_ == ACT_NUMERIC
                           ? "step %lld gives the same on another node: it is the data or the model, not the device"
                           : "two attempts ended in the same way at step %lld: the program does it, not the machine",
                       (long long)i->step);
    } else if (then->disorders > 1 && i->class_ == ACT_DISORDER) {
        ret->verb = ACT_FAIL_USER;
        (void)snprintf(ret->why, sizeof(ret->why), "ranks called in different orders in two attempts%s%.120s",
                       i->words ? ": " : "", i->words ? i->words : "");
    } else if (then->soon_lost >= ACT_SOON_LOST_MAX) {
        (void)snprintf(ret->why, sizeof(ret->why),
                       "%d runs of this job in a row lost a node within %d minutes of their start; it is not started "
                       "again, so that it takes no more nodes with it",
                       ACT_SOON_LOST_MAX, (int)(ACT_SOON_US / (60 * SECOND)));
    } else if (then->stuck >= ACT_STUCK_MAX) {
        (void)snprintf(ret->why, sizeof(ret->why),
                       "%d attempts in a row ended before they passed step %lld, the last that was saved",
                       ACT_STUCK_MAX, (long long)(i->saved < 0 ? 0 : i->saved));
    } else if (then->infra > ACT_INFRA_PER_DAY) {
        (void)snprintf(ret->why, sizeof(ret->why), "nodes, devices and links have ended %d attempts within a day",
                       ACT_INFRA_PER_DAY + 1);
    } else if (rows[i->class_].first == ACT_ROLL_BACK && then->roll_backs > ACT_ROLL_BACKS) {
        ret->verb = i->class_ == ACT_NUMERIC ? ACT_FAIL_USER : ACT_FAIL;
        (void)snprintf(ret->why, sizeof(ret->why), "the numbers are bad also from %d checkpoints further back",
                       ACT_ROLL_BACKS);
    } else {
        ret->verb = ACT_NOTHING;
    }
    return ret->verb != ACT_NOTHING;
}

void act_decide(const struct act_left *left, const struct act_history *h, const struct act_incident *i, struct act *ret)
{
    const struct row *row = &rows[i->class_];

    *ret = (struct act){.then = *h};
    if (h->incident == i->id)
        return;
    remember(h, i, &ret->then);
    if (is_hopeless(h, i, ret))
        return;
    if ((row->user ? left->user : left->system) <= 0) {
        ret->verb = ACT_FAIL;
        return;
    }
    ret->wait_us = wait_us(ret->then.in_a_row++, i->id);
    ret->verb = row->first;
    ret->back = row->first == ACT_ROLL_BACK ? ret->then.roll_backs : 0;
    if (ret->verb == ACT_IN_PLACE && h->incident != 0 && h->node == i->node && ret->then.in_a_row > 1)
        ret->verb = ACT_ELSEWHERE; /* the same node again, and no attempt did well between */
}

enum act_verb act_slow(enum act_class class_, const struct act_history *h, int64_t now_us, struct act_history *then)
{
    struct act_history next = *h;
    struct act_moves *moves = class_ == ACT_SLOW_LINK ? &next.link_moves : &next.moves;

    if (is_new_day(moves->since_us, now_us))
        *moves = (struct act_moves){.since_us = now_us};
    if (moves->n++ >= rows[class_].moves)
        return ACT_NOTHING;
    if (then)
        *then = next;
    return rows[class_].first;
}
