/* Loaded before the C library: a rank whose processor is slower than those of others. The file that FAKE_SLOW_RANK
 * names holds the rank, and by how many percent all that it computes takes longer: so much processor time is spent
 * besides, a little at a time. */
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define PERIOD_NS 8000000 /* of processor time of the main thread */

static const volatile struct {
    int32_t rank, percent;
} * slow;
static int own = -1;

static int64_t processor_ns(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void burn(int signal)
{
    int64_t percent = slow->percent, end = processor_ns() + PERIOD_NS * percent / (100 + percent);

    (void)signal;
    while (slow->rank == own && processor_ns() < end)
        ;
}

__attribute__((constructor)) static void begin(int argc, char **argv)
{
    const char *path = getenv("FAKE_SLOW_RANK");
    struct sigaction action = {.sa_handler = burn, .sa_flags = SA_RESTART};
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGRTMAX - 1};
    struct itimerspec period = {.it_interval = {.tv_nsec = PERIOD_NS}, .it_value = {.tv_nsec = PERIOD_NS}};
    int fd;
    void *map;
    timer_t timer;

    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], "--rank") == 0)
            own = (int)strtol(argv[i + 1], NULL, 10);
    fd = path && own >= 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    map = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof(*slow), PROT_READ, MAP_SHARED, fd, 0);
    if (fd >= 0)
        (void)close(fd);
    if (map == MAP_FAILED)
        return;
    slow = map;
    event._sigev_un._tid = gettid();
    if (sigaction(SIGRTMAX - 1, &action, NULL) < 0 || timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer) < 0 ||
        timer_settime(timer, 0, &period, NULL) < 0)
        abort();
}
