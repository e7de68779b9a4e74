#include "tests/sim/book.h"

#include <stdlib.h>

#include "base/hash.h"

struct book { /* an open hash table of at most half as many entries as places */
    struct book_rank *v;
    bool *used;
    size_t n, cap;
};

static size_t place(const struct book *b, uint64_t job, uint64_t generation, int rank)
{
    uint64_t key[3] = {job, generation, (uint64_t)rank};
    size_t i = (size_t)hash_xxh3(key, sizeof(key)) & (b->cap - 1);

    while (b->used[i] && (b->v[i].job != job || b->v[i].generation != generation || b->v[i].rank != rank))
        i = (i + 1) & (b->cap - 1);
    return i;
}

static void make(struct book *b, size_t cap)
{
    b->cap = cap;
    b->v = calloc(cap, sizeof(*b->v));
    b->used = calloc(cap, sizeof(*b->used));
    if (!b->v || !b->used)
        abort();
}

struct book *book_new(void)
{
    struct book *b = calloc(1, sizeof(*b));

    if (!b)
        abort();
    make(b, 1024);
    return b;
}

void book_free(struct book *b)
{
    if (!b)
        return;
    free(b->v);
    free(b->used);
    free(b);
}

static void grow(struct book *b)
{
    struct book old = *b;

    make(b, old.cap * 2);
    for (size_t i = 0; i < old.cap; i++)
        if (old.used[i]) {
            size_t at = place(b, old.v[i].job, old.v[i].generation, old.v[i].rank);

            b->used[at] = true;
            b->v[at] = old.v[i];
        }
    free(old.v);
    free(old.used);
}

struct book_rank *book_begin(struct book *b, uint64_t job, uint64_t generation, int rank)
{
    size_t at;

    if (2 * b->n >= b->cap)
        grow(b);
    at = place(b, job, generation, rank);
    b->n += !b->used[at];
    b->used[at] = true;
    b->v[at] = (struct book_rank){.job = job, .generation = generation, .rank = rank, .alive = true};
    return &b->v[at];
}

const struct book_rank *book_find(const struct book *b, uint64_t job, uint64_t generation, int rank)
{
    size_t at = place(b, job, generation, rank);

    return b->used[at] ? &b->v[at] : NULL;
}

void book_end(struct book *b, uint64_t job, uint64_t generation, int rank, const struct book_rank *how)
{
    size_t at = place(b, job, generation, rank);

    if (!b->used[at])
        abort();
    b->v[at] = (struct book_rank){.job = job,
                                  .generation = generation,
                                  .rank = rank,
                                  .words = how->words,
                                  .by_itself = how->by_itself,
                                  .code = how->code,
                                  .signal = how->signal};
}

void book_hang(struct book *b, uint64_t job, uint64_t generation, int rank, int64_t now_us)
{
    size_t at = place(b, job, generation, rank);

    if (b->used[at])
        b->v[at].hung_us = now_us;
}

void book_lose_files(struct book *b, uint64_t job, uint64_t generation, int rank)
{
    size_t at = place(b, job, generation, rank);

    if (b->used[at])
        b->v[at].files_lost = true;
}
