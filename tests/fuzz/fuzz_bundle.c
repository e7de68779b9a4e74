/* Any bytes as an upload: refused, or files that all lie in their folder, from which the same bytes are made again. */
#include "api/bundle.h"

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "worker/agent/unpack.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char top[] = "/tmp/muster-fuzz.XXXXXX", path[64];
    struct bundle_reader r;
    struct bundle_entry e;
    struct merr err = {""};
    struct buf again;
    struct stat st;
    int more, fd;

    if (bundle_open(&r, data, size, &err) < 0) {
        assert(err.text[0]);
        return 0;
    }
    buf_init(&again, size + 16);
    (void)bundle_begin(&again);
    while ((more = bundle_next(&r, &e, &err)) > 0)
        assert(bundle_add(&again, &e, &err) == 0);
    assert(more < 0 ? err.text[0] != '\0' : again.len == size && memcmp(again.data, data, size) == 0);
    buf_clear(&again);
    assert(mkdtemp(top));
    (void)snprintf(path, sizeof(path), "%s/in", top);
    assert(mkdir(path, 0700) == 0 && (fd = open(path, O_RDONLY | O_DIRECTORY)) >= 0);
    (void)unpack_bundle(data, size, fd, &err);
    (void)close(fd);
    (void)io_remove_tree(path, NULL);
    assert(stat(top, &st) == 0 && st.st_nlink == 2 && rmdir(top) == 0); /* nothing came to lie beside it */
    return 0;
}
