/* How long a state may take to load, by its size. */
#include "tests/unit/test.h"

#include "scheduler/diagnose/hang.h"
#include "worker/engine/train/resume.h"

#define S INT64_C(1000000)

static void a_state_may_take_as_long_as_its_size_needs(void **state)
{
    static const struct {
        uint64_t bytes;
        int64_t seconds; /* until a rank that shows no sign of life while it loads is named */
    } row[] = {{0, 90}, {UINT64_C(360) << 20, 90 + 33}, {UINT64_C(16) << 30, 90 + 1536}};

    (void)state;
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        struct hang_rank r = {.phase = HANG_STARTS, .allowed_us = resume_allowed_us(row[i].bytes)};

        assert_int_equal(hang_deadline_us(&r, 0) / S, row[i].seconds);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_state_may_take_as_long_as_its_size_needs)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
