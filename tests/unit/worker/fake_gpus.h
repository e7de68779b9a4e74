/* fake_gpus - the GPUs that the driver library of tests/gpu/fake_nvml.c shows */
#ifndef MUSTER_TESTS_UNIT_WORKER_FAKE_GPUS_H
#define MUSTER_TESTS_UNIT_WORKER_FAKE_GPUS_H

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define H100(uuid)                                                                                                     \
    "{\"uuid\": \"" uuid "\", \"name\": \"NVIDIA H100 80GB HBM3\", \"memory_mib\": 81559, \"used_mib\": 7"

static char fake_path[64];

/* From now on these; `gpus` is the file's JSON. Replaced whole: a thread may be reading it. */
static inline void fake_gpus(const char *gpus)
{
    char next[sizeof(fake_path) + 8];
    FILE *f;

    if (!*fake_path) {
        int fd;

        (void)snprintf(fake_path, sizeof(fake_path), "/tmp/muster-gpus-XXXXXX");
        fd = mkstemp(fake_path);
        assert_true(fd >= 0);
        (void)close(fd);
        assert_int_equal(setenv("FAKE_NVML", fake_path, 1), 0);
    }
    (void)snprintf(next, sizeof(next), "%s.next", fake_path);
    f = fopen(next, "we");
    assert_non_null(f);
    assert_int_equal(fwrite(gpus, 1, strlen(gpus), f), strlen(gpus));
    assert_int_equal(fclose(f), 0);
    assert_int_equal(rename(next, fake_path), 0);
}

static inline int fake_gpus_gone(void **state)
{
    (void)state;
    return *fake_path ? unlink(fake_path) : 0;
}

#endif
