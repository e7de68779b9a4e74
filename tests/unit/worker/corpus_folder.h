/* corpus_folder - a folder of a test's own with a corpus in it, and a spec that names it */
#ifndef MUSTER_TESTS_UNIT_WORKER_CORPUS_FOLDER_H
#define MUSTER_TESTS_UNIT_WORKER_CORPUS_FOLDER_H

#include "tests/unit/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/spec.h"
#include "base/io.h"

struct corpus_folder {
    char dir[32], path[48], index[48]; /* the corpus; where its documents end */
    struct job_spec spec;
    struct merr err;
};

/* A spec of bytes, of sequences of this length. 0, -1: there is no such folder to be had. */
static inline int corpus_folder_init(struct corpus_folder *f, enum data_format format, int length)
{
    memset(f, 0, sizeof(*f));
    (void)snprintf(f->dir, sizeof(f->dir), "/tmp/muster-corpus-XXXXXX");
    if (!mkdtemp(f->dir))
        return -1;
    (void)snprintf(f->path, sizeof(f->path), "%s/corpus", f->dir);
    (void)snprintf(f->index, sizeof(f->index), "%s/index", f->dir);
    f->spec.train.data.path = f->path;
    f->spec.train.data.format = format;
    f->spec.train.model.vocab = 256;
    f->spec.train.batch.length = length;
    f->spec.train.init.seed = 1234;
    return 0;
}

static inline int corpus_folder_clear(struct corpus_folder *f)
{
    return io_remove_tree(f->dir, NULL);
}

static inline void corpus_folder_put(const struct corpus_folder *f, const void *data, size_t len)
{
    assert_int_equal(io_publish_file(f->path, data, len, 0600, NULL), 0);
}

/* What opened it, and refused, said so. */
static inline void corpus_folder_said(const struct corpus_folder *f, const char *words)
{
    if (!strstr(f->err.text, words))
        fail_msg("'%s' does not say '%s'", f->err.text, words);
}

#endif
