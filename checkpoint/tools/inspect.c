/* inspect - all tables of a checkpoint as JSON */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "checkpoint/format/coding.h"
#include "checkpoint/format/dtype.h"
#include "checkpoint/read/read.h"

static json_t *numbers(const uint64_t *v, int n)
{
    json_t *a = json_array();

    for (int i = 0; i < n; i++)
        (void)json_array_append_new(a, json_integer((json_int_t)v[i]));
    return a;
}

static json_t *inspect_shard(const struct mck_tensor *t, const struct mck_shard *s)
{
    return json_pack("{s:I,s:I,s:o,s:o,s:o,s:I,s:I}", "file", (json_int_t)s->file_id, "rank",
                     (json_int_t)s->writer_rank, "offset", numbers(s->off, t->ndim), "length", numbers(s->len, t->ndim),
                     "range", json_pack("[I,I]", (json_int_t)s->sub_begin, (json_int_t)s->sub_end), "stream_offset",
                     (json_int_t)s->stream_off, "bytes", (json_int_t)s->bytes);
}

static json_t *inspect_tensor(const struct mck *c, const struct mck_tensor *t)
{
    json_t *shards = json_array();

    for (uint32_t i = 0; i < t->shard_count; i++)
        (void)json_array_append_new(shards, inspect_shard(t, &c->ix.shard[t->shard_first + i]));
    return json_pack("{s:o,s:s,s:s,s:o,s:o}", "name", json_stringn(index_name(&c->ix, t), t->name_len), "role",
                     role_name(t->role), "dtype", dtype_name(t->dtype), "shape", numbers(t->shape, t->ndim), "shards",
                     shards);
}

static json_t *inspect_chunk(const struct mck_chunk *e)
{
    static const char *const filters[] = {"none", "shuffle", "rotate"};

    return json_pack("{s:I,s:I,s:I,s:s,s:s,s:o,s:o}", "offset", (json_int_t)e->file_off, "stored",
                     (json_int_t)e->stored_len, "bytes", (json_int_t)e->logical_len, "codec", coding_name(e->codec),
                     "filter", filters[e->filter <= 2 ? e->filter : 0], "crc32c", json_sprintf("%08x", e->crc32c),
                     "xxh3", json_sprintf("%016llx", (unsigned long long)e->xxh3));
}

static json_t *inspect_file(const struct mck *c, uint32_t i)
{
    const struct mck_file *f = &c->ix.file[i];
    const char *path = c->paths[c->source[i].path], *slash = strrchr(path, '/');
    json_t *chunks = json_array();
    uint64_t stored = 0;

    for (uint32_t k = 0; k < f->chunk_count; k++) {
        const struct mck_chunk *e = &c->ix.chunk[f->chunk_first + k];

        stored += e->codec == CHUNK_MOMENT2 ? 0 : e->stored_len; /* it lies where the first moments do */
        (void)json_array_append_new(chunks, inspect_chunk(e));
    }
    return json_pack("{s:I,s:s,s:b,s:I,s:I,s:I,s:o}", "file", (json_int_t)f->file_id, "name", slash ? slash + 1 : path,
                     "archived", (f->flags & MCK_FILE_ARCHIVED) != 0, "bytes", (json_int_t)f->stream_len,
                     "stored_bytes", (json_int_t)stored, "file_bytes", (json_int_t)f->file_len, "chunks", chunks);
}

json_t *mck_inspect(const struct mck *c)
{
    json_t *files = json_array(), *tensors = json_array();
    char created[CLOCK_RFC3339_MAX], uuid[33];

    for (int i = 0; i < 16; i++)
        (void)snprintf(uuid + 2 * i, 3, "%02x", c->ix.uuid[i]);
    for (uint32_t i = 0; i < c->ix.files; i++)
        (void)json_array_append_new(files, inspect_file(c, i));
    for (size_t i = 0; i < c->ix.tensors; i++)
        (void)json_array_append_new(tensors, inspect_tensor(c, &c->ix.tensor[i]));
    clock_rfc3339((int64_t)(c->ix.created_ns / 1000), created);
    return json_pack("{s:I,s:s,s:s,s:s,s:I,s:I,s:o,s:o,s:O}", "step", (json_int_t)c->ix.step, "path", c->path,
                     "attempt", uuid, "created", created, "version", (json_int_t)MCK_VERSION, "writers",
                     (json_int_t)c->ix.writers, "files", files, "tensors", tensors, "kv", c->kv);
}
