#include "tests/unit/test.h"

#include <pthread.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/thread.h"

struct seen {
    char name[16];
    int nice;
};

static void *look(void *arg)
{
    struct seen *s = arg;

    thread_begin("patient", 3);
    assert_int_equal(pthread_getname_np(pthread_self(), s->name, sizeof(s->name)), 0);
    s->nice = getpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid));
    return NULL;
}

static void a_thread_is_patient_and_the_others_stay_as_they_are(void **state)
{
    int before = getpriority(PRIO_PROCESS, 0);
    struct seen seen = {.nice = 0};
    pthread_t thread;

    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, look, &seen), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_string_equal(seen.name, "patient");
    assert_int_equal(seen.nice, before + 3 > 19 ? 19 : before + 3);
    assert_int_equal(getpriority(PRIO_PROCESS, 0), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_is_patient_and_the_others_stay_as_they_are),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
