/* The table of what follows a failure, row by row. */
#include "tests/unit/test.h"

#include <string.h>

#include "scheduler/diagnose/act.h"

#define SECOND INT64_C(1000000)
#define MINUTE (60 * SECOND)
#define START (1700000000 * SECOND)

static const struct act_left plenty = {.system = 1000, .user = 1000};

/* A job that fails again and again: a minute after each start unless told otherwise. */
struct life {
    struct act_history past;
    struct act_incident next;
    struct act got;
};

static struct life begin(enum act_class class_)
{
    return (struct life){
        .next = {.id = 1, .class_ = class_, .now_us = START, .node = 7, .step = -1, .saved = -1, .began_us = START}};
}

static enum act_verb fail_again(struct life *l, int64_t after_us)
{
    l->next.began_us = l->next.now_us;
    l->next.now_us += after_us;
    act_decide(&plenty, &l->past, &l->next, &l->got);
    l->past = l->got.then;
    l->next.id++;
    return l->got.verb;
}

static void each_class_has_its_first_action_and_its_blame(void **state)
{
    static const struct {
        enum act_class class_;
        enum act_verb verb;
        int blame;
    } row[] = {
        {ACT_USER, ACT_ELSEWHERE, 0},    {ACT_CRASH, ACT_IN_PLACE, 10},    {ACT_STOPPED, ACT_IN_PLACE, 2},
        {ACT_LOST, ACT_ELSEWHERE, 30},   {ACT_DEVICE, ACT_ELSEWHERE, 30},  {ACT_NOT_ENTERED, ACT_IN_PLACE, 10},
        {ACT_DISORDER, ACT_IN_PLACE, 0}, {ACT_IN_CALL, ACT_ELSEWHERE, 60}, {ACT_PHASE, ACT_IN_PLACE, 2},
        {ACT_NUMERIC, ACT_ROLL_BACK, 0}, {ACT_REPLICA, ACT_ROLL_BACK, 60}, {ACT_SLOW, ACT_MOVE, 30},
        {ACT_SLOW_TESTED, ACT_MOVE, 60}, {ACT_SLOW_LINK, ACT_MOVE, 30},
    };

    (void)state;
    assert_int_equal(sizeof(row) / sizeof(row[0]), ACT_CLASSES);
    for (size_t i = 0; i < ACT_CLASSES; i++) {
        struct life l = begin(row[i].class_);

        assert_int_equal(fail_again(&l, MINUTE), row[i].verb);
        assert_int_equal(l.got.wait_us, 0); /* a first failure waits for nothing */
        assert_int_equal(act_blame(row[i].class_), row[i].blame);
        assert_string_equal(l.got.why, "");
    }
}

static void runs_that_nodes_devices_and_links_ended_may_have_spares(void **state)
{
    (void)state;
    for (enum act_class class_ = 0; class_ < ACT_CLASSES; class_++)
        assert_int_equal(act_takes_spare(class_), class_ == ACT_LOST || class_ == ACT_DEVICE || class_ == ACT_IN_CALL);
}

static void a_run_on_slow_devices_moves_at_once_a_few_times_a_day(void **state)
{
    struct act_history h = {.incident = 7};
    int64_t now = START;

    (void)state;
    assert_int_equal(act_slow(ACT_CRASH, &h, now, &h), ACT_NOTHING); /* no class of this kind */
    for (int day = 0; day < 3; day++) {
        for (int i = 0; i < 4; i++, now += MINUTE) {
            assert_int_equal(act_slow(ACT_SLOW, &h, now, NULL), ACT_MOVE); /* asking takes nothing */
            assert_int_equal(act_slow(ACT_SLOW, &h, now, &h), ACT_MOVE);
        }
        assert_int_equal(act_slow(ACT_SLOW, &h, now, &h), ACT_NOTHING);
        assert_int_equal(h.moves.n, 4);
        now += 24 * 60 * MINUTE;
    }
    assert_int_equal(h.incident, 7);
    now -= 3 * 24 * 60 * MINUTE; /* the clock was set back */
    assert_int_equal(act_slow(ACT_SLOW, &h, now, &h), ACT_MOVE);
}

static void moves_off_slow_links_and_off_slow_devices_are_counted_apart(void **state)
{
    struct act_history h = {.incident = 7};
    int64_t now = START;

    (void)state;
    for (int i = 0; i < 4; i++)
        assert_int_equal(act_slow(ACT_SLOW, &h, now, &h), ACT_MOVE);
    now += 20 * 60 * MINUTE; /* a day of its own, which begins with the first */
    for (int i = 0; i < 2; i++)
        assert_int_equal(act_slow(ACT_SLOW_LINK, &h, now, &h), ACT_MOVE);
    assert_int_equal(act_slow(ACT_SLOW_LINK, &h, now, &h), ACT_NOTHING);
    assert_int_equal(act_slow(ACT_SLOW, &h, now, &h), ACT_NOTHING);
    now += 5 * 60 * MINUTE;
    assert_int_equal(act_slow(ACT_SLOW_LINK, &h, now, &h), ACT_NOTHING);
    assert_int_equal(act_slow(ACT_SLOW, &h, now, &h), ACT_MOVE);
    assert_true(h.moves.n == 1 && h.link_moves.n == 2);
}

static void the_spec_bounds_restarts_of_its_own_faults_and_of_others_apart(void **state)
{
    (void)state;
    for (enum act_class class_ = 0; class_ < ACT_CLASSES; class_++) {
        struct life l = begin(class_);
        struct act_left none_for_user = {.system = 1}, none_for_system = {.user = 1};

        act_decide(&none_for_user, &l.past, &l.next, &l.got);
        assert_int_equal(l.got.verb == ACT_FAIL, class_ == ACT_USER);
        act_decide(&none_for_system, &l.past, &l.next, &l.got);
        assert_int_equal(l.got.verb == ACT_FAIL, class_ != ACT_USER);
    }
}

static void an_incident_is_acted_upon_once(void **state)
{
    struct life l = begin(ACT_CRASH);
    struct act again;

    (void)state;
    assert_int_equal(fail_again(&l, MINUTE), ACT_IN_PLACE);
    l.next.id--;
    act_decide(&plenty, &l.past, &l.next, &again); /* the second of two ranks that were killed */
    assert_int_equal(again.verb, ACT_NOTHING);
    assert_memory_equal(&again.then, &l.past, sizeof(again.then));
}

static void waits_double_up_to_five_minutes_and_begin_anew_after_a_healthy_attempt(void **state)
{
    static const int want_s[] = {0, 5, 10, 20, 40, 80, 160, 300, 300};
    struct life l = begin(ACT_CRASH);
    int64_t sum_us = 0;

    (void)state;
    for (size_t i = 0; i < sizeof(want_s) / sizeof(want_s[0]); i++) {
        fail_again(&l, MINUTE);
        assert_in_range(l.got.wait_us, want_s[i] * SECOND / 2, want_s[i] * SECOND * 3 / 2);
        assert_true(l.got.wait_us <= ACT_WAIT_MAX_US);
    }
    fail_again(&l, ACT_HEALTHY_US);
    assert_int_equal(l.got.wait_us, 0);
    fail_again(&l, MINUTE);
    assert_in_range(l.got.wait_us, 5 * SECOND / 2, 15 * SECOND / 2);
    l.next.step = 11; /* it has passed its checkpoint: that is well, too */
    l.next.saved = 10;
    fail_again(&l, MINUTE);
    assert_int_equal(l.got.wait_us, 0);
    for (int i = 0; i < 1000; i++) { /* jobs that failed together do not come back together */
        l = begin(ACT_CRASH);
        l.next.id = (uint64_t)(i + 1) << 20;
        fail_again(&l, MINUTE);
        fail_again(&l, MINUTE);
        sum_us += l.got.wait_us;
    }
    assert_in_range(sum_us, 4800 * SECOND, 5200 * SECOND);
}

static void what_fails_twice_on_a_node_goes_elsewhere(void **state)
{
    struct life l = begin(ACT_NOT_ENTERED);

    (void)state;
    assert_int_equal(fail_again(&l, MINUTE), ACT_IN_PLACE);
    assert_int_equal(fail_again(&l, MINUTE), ACT_ELSEWHERE);
    l.next.node = 8;
    assert_int_equal(fail_again(&l, MINUTE), ACT_IN_PLACE);
    assert_int_equal(fail_again(&l, ACT_HEALTHY_US), ACT_IN_PLACE); /* it did well there for long */
}

/* Row 53 of the fault catalogue: a deterministic fault at one step. */
static void a_program_that_ends_twice_alike_at_one_step_fails_as_its_owners(void **state)
{
    struct life l = begin(ACT_USER);

    (void)state;
    l.next.signature = 99;
    l.next.step = 40;
    l.next.saved = 20;
    assert_int_equal(fail_again(&l, MINUTE), ACT_ELSEWHERE);
    assert_int_equal(fail_again(&l, MINUTE), ACT_FAIL_USER);
    assert_string_equal(l.got.why,
                        "two attempts ended in the same way at step 40: the program does it, not the machine");
    l.next.step = 41; /* another step, or another end, is another fault */
    assert_int_equal(fail_again(&l, MINUTE), ACT_ELSEWHERE);
    l.next.signature = 98;
    assert_int_equal(fail_again(&l, MINUTE), ACT_ELSEWHERE);
    l.next.step = -1; /* a command's step is not known: its spec alone says how often */
    assert_int_equal(fail_again(&l, MINUTE), ACT_ELSEWHERE);
    assert_int_equal(fail_again(&l, MINUTE), ACT_ELSEWHERE);
    l = begin(ACT_CRASH); /* what may be the machine's has to happen on two */
    l.next.signature = 99;
    l.next.step = 40;
    assert_int_equal(fail_again(&l, MINUTE), ACT_IN_PLACE);
    assert_int_equal(fail_again(&l, MINUTE), ACT_IN_PLACE);
    l.next.node = 8;
    assert_int_equal(fail_again(&l, MINUTE), ACT_FAIL_USER);
}

static void operations_out_of_order_are_tried_once_more_and_then_told_to_the_owner(void **state)
{
    struct life l = begin(ACT_DISORDER);

    (void)state;
    l.next.words = "rank 1 calls all_reduce where others call broadcast";
    assert_int_equal(fail_again(&l, MINUTE), ACT_IN_PLACE);
    assert_int_equal(fail_again(&l, MINUTE), ACT_FAIL_USER);
    assert_string_equal(l.got.why, "ranks called in different orders in two attempts: rank 1 calls all_reduce where "
                                   "others call broadcast");
}

static void bad_numbers_roll_back_further_three_times(void **state)
{
    struct life l = begin(ACT_NUMERIC);

    (void)state;
    for (int back = 1; back <= ACT_ROLL_BACKS; back++) {
        l.next.step = 40 + back;
        assert_int_equal(fail_again(&l, MINUTE), ACT_ROLL_BACK);
        assert_int_equal(l.got.back, back);
    }
    assert_int_equal(fail_again(&l, MINUTE), ACT_FAIL_USER);
    l.next.step++;
    assert_int_equal(fail_again(&l, ACT_HEALTHY_US), ACT_ROLL_BACK); /* long after that it is another fault */
    assert_int_equal(l.got.back, 1);
}

static void a_number_that_is_none_at_the_same_step_on_two_nodes_is_the_owners(void **state)
{
    for (int same_node = 0; same_node < 2; same_node++) {
        struct life l = begin(ACT_NUMERIC);

        (void)state;
        l.next.step = 40;
        l.next.signature = 7;
        l.next.node = 1;
        assert_int_equal(fail_again(&l, MINUTE), ACT_ROLL_BACK);
        l.next.node = same_node ? 1 : 2;
        assert_int_equal(fail_again(&l, MINUTE), same_node ? ACT_ROLL_BACK : ACT_FAIL_USER);
        assert_string_equal(l.got.why, same_node ? ""
                                                 : "step 40 gives the same on another node: it is the data or the "
                                                   "model, not the device");
    }
}

/* Which of them gave the bad part of a sum is not known, and the others may be where they were. */
static void with_replicas_on_other_nodes_a_second_bad_number_rules_out_no_device(void **state)
{
    struct life l = begin(ACT_NUMERIC);

    (void)state;
    l.next.step = 40;
    l.next.signature = 7;
    l.next.replicas = true;
    l.next.node = 1;
    assert_int_equal(fail_again(&l, MINUTE), ACT_ROLL_BACK);
    l.next.node = 2;
    assert_int_equal(fail_again(&l, MINUTE), ACT_FAIL_USER);
    assert_string_equal(l.got.why,
                        "step 40 gives the same with this rank on another node: it is the data or the model, or a "
                        "device of another replica, whose gradients are added to its");
}

static void replicas_that_differ_roll_back_with_bad_numbers_and_are_no_fault_of_the_owner(void **state)
{
    struct life l = begin(ACT_NUMERIC);

    (void)state;
    for (int back = 1; back <= ACT_ROLL_BACKS; back++) {
        l.next.step = 40 + back;
        assert_int_equal(fail_again(&l, MINUTE), ACT_ROLL_BACK);
        assert_int_equal(l.got.back, back);
        l.next.class_ = ACT_REPLICA;
    }
    assert_int_equal(fail_again(&l, MINUTE), ACT_FAIL);
    assert_string_equal(l.got.why, "the numbers are bad also from 3 checkpoints further back");
}

static void three_attempts_that_do_not_pass_their_checkpoint_are_the_last(void **state)
{
    static const enum act_class counts[] = {ACT_DEVICE, ACT_STOPPED, ACT_PHASE, ACT_NOT_ENTERED};

    (void)state;
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        struct life l = begin(counts[i]);

        l.next.step = l.next.saved = 20;
        (void)fail_again(&l, MINUTE);
        (void)fail_again(&l, MINUTE);
        l.next.step = 21; /* it passes it */
        assert_true(fail_again(&l, MINUTE) < ACT_FAIL);
        l.next.saved = 21;
        assert_true(fail_again(&l, MINUTE) < ACT_FAIL);
        assert_true(fail_again(&l, MINUTE) < ACT_FAIL);
        assert_int_equal(fail_again(&l, MINUTE), ACT_FAIL);
        assert_string_equal(l.got.why, "3 attempts in a row ended before they passed step 21, the last that was saved");
    }
}

static void attempts_that_others_ended_do_not_count_as_without_progress(void **state)
{
    struct life l = begin(ACT_CRASH);

    (void)state;
    l.next.step = l.next.saved = 0;
    for (int i = 0; i < 10; i++) /* by signals; the spec's own limit ends that */
        assert_true(fail_again(&l, MINUTE) < ACT_FAIL);
    l = begin(ACT_USER);
    l.next.saved = 0; /* no step is known, as of a command */
    for (int i = 0; i < 10; i++)
        assert_true(fail_again(&l, MINUTE) < ACT_FAIL);
}

static void nodes_that_are_lost_soon_after_the_start_are_lost_by_the_job(void **state)
{
    struct life l = begin(ACT_LOST);

    (void)state;
    (void)fail_again(&l, MINUTE);
    assert_int_equal(fail_again(&l, MINUTE), ACT_ELSEWHERE);
    assert_int_equal(fail_again(&l, ACT_SOON_US), ACT_ELSEWHERE);
    (void)fail_again(&l, MINUTE);
    (void)fail_again(&l, MINUTE);
    assert_int_equal(fail_again(&l, MINUTE), ACT_FAIL);
    assert_non_null(strstr(l.got.why, "in a row lost a node within 10 minutes of their start"));
}

static void a_node_that_was_lost_before_the_attempt_began_is_not_lost_by_the_job(void **state)
{
    static const struct {
        int64_t silent_us; /* when the attempt began */
        int counted;
    } row[] = {{-MINUTE, 1}, {0, 1}, {ACT_GONE_US - 1, 1}, {ACT_GONE_US, 0}, {MINUTE, 0}};

    (void)state;
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        struct life l = begin(ACT_LOST);

        l.next.heard_us = l.next.now_us - row[i].silent_us;
        (void)fail_again(&l, MINUTE);
        assert_int_equal(l.past.soon_lost, row[i].counted);
    }
}

static void machines_end_twenty_attempts_a_day_and_no_more(void **state)
{
    static const enum act_class infra[] = {ACT_LOST, ACT_DEVICE, ACT_IN_CALL};
    struct life l = begin(ACT_LOST);

    (void)state;
    for (int i = 0; i < ACT_INFRA_PER_DAY; i++) {
        l.next.class_ = infra[i % 3];
        assert_int_equal(fail_again(&l, 11 * MINUTE), ACT_ELSEWHERE);
    }
    assert_int_equal(fail_again(&l, 11 * MINUTE), ACT_FAIL);
    l.next.class_ = ACT_CRASH; /* is not of that budget */
    l.past.infra = ACT_INFRA_PER_DAY;
    assert_true(fail_again(&l, 11 * MINUTE) < ACT_FAIL);
    l.next.class_ = ACT_LOST;
    assert_int_equal(fail_again(&l, 86400 * SECOND), ACT_ELSEWHERE);
    assert_int_equal(l.past.infra, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_class_has_its_first_action_and_its_blame),
        cmocka_unit_test(runs_that_nodes_devices_and_links_ended_may_have_spares),
        cmocka_unit_test(a_run_on_slow_devices_moves_at_once_a_few_times_a_day),
        cmocka_unit_test(moves_off_slow_links_and_off_slow_devices_are_counted_apart),
        cmocka_unit_test(the_spec_bounds_restarts_of_its_own_faults_and_of_others_apart),
        cmocka_unit_test(an_incident_is_acted_upon_once),
        cmocka_unit_test(waits_double_up_to_five_minutes_and_begin_anew_after_a_healthy_attempt),
        cmocka_unit_test(what_fails_twice_on_a_node_goes_elsewhere),
        cmocka_unit_test(a_program_that_ends_twice_alike_at_one_step_fails_as_its_owners),
        cmocka_unit_test(operations_out_of_order_are_tried_once_more_and_then_told_to_the_owner),
        cmocka_unit_test(bad_numbers_roll_back_further_three_times),
        cmocka_unit_test(a_number_that_is_none_at_the_same_step_on_two_nodes_is_the_owners),
        cmocka_unit_test(with_replicas_on_other_nodes_a_second_bad_number_rules_out_no_device),
        cmocka_unit_test(replicas_that_differ_roll_back_with_bad_numbers_and_are_no_fault_of_the_owner),
        cmocka_unit_test(three_attempts_that_do_not_pass_their_checkpoint_are_the_last),
        cmocka_unit_test(attempts_that_others_ended_do_not_count_as_without_progress),
        cmocka_unit_test(nodes_that_are_lost_soon_after_the_start_are_lost_by_the_job),
        cmocka_unit_test(a_node_that_was_lost_before_the_attempt_began_is_not_lost_by_the_job),
        cmocka_unit_test(machines_end_twenty_attempts_a_day_and_no_more),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
