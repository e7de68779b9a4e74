#include "tests/unit/test.h"

#include <errno.h>

#include "api/times.h"

static void times_are_read_in_slurms_forms_and_with_units(void **state)
{
    static const struct {
        const char *text;
        int want; /* -1: none */
    } row[] = {{"90", 5400},
               {"30:05", 1805},
               {"4:00:00", 14400},
               {"2-12", 216000},
               {"2-12:30", 217800},
               {"2-12:30:15", 217815},
               {"90m", 5400},
               {"45s", 45},
               {"4h", 14400},
               {"7d", 604800},
               {"0", 0},
               {"", -1},
               {"m", -1},
               {"4h30", -1},
               {"1:2:3:4", -1},
               {"1:", -1},
               {":1", -1},
               {"-1", -1},
               {"2-", -1},
               {"2-1:2:3:4", -1},
               {"90x", -1},
               {" 9", -1},
               {"99999999999", -1},
               {"2000000000m", -1},
               {"365-0", 31536000},
               {"1.5h", -1},
               {"UNLIMITED", -1}};

    (void)state;
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        int s = -1, r = times_parse(row[i].text, &s);

        if (r != (row[i].want < 0 ? -EINVAL : 0) || s != row[i].want)
            fail_msg("'%s': %d, %d", row[i].text, r, s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_are_read_in_slurms_forms_and_with_units),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
