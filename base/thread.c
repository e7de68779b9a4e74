#include "base/thread.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

void thread_begin(const char *name, int nice)
{
    id_t self = (id_t)syscall(SYS_gettid);

    (void)pthread_setname_np(pthread_self(), name);
    if (nice > 0) /* of this thread alone: Linux has it so */
        (void)setpriority(PRIO_PROCESS, self, getpriority(PRIO_PROCESS, self) + nice);
}
