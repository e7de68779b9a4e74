#include "compress/huffman.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "compress/le.h"

#define MAGIC 0xfd2fb528u
#define DESCRIPTOR 0xa0 /* the length in four bytes, and no window beyond it */
#define HEADER 9
#define BLOCK (128u << 10)
#define BITS_MAX 11 /* of a code */
#define SYMBOLS 129 /* as many as weights that are stored as they are can tell of */
#define STREAMS 4
#define STREAM_SLACK 8 /* streams are written in whole words */
#define BLOCK_HEAD 3
#define SIZES 5 /* a coded block's own head: kind, symbols, bytes */
#define JUMPS 6
#define CODE_OWN 2u   /* in the lowest bits of SIZES */
#define CODE_KNOWN 3u /* that of the block before */
#define FOUR_STREAMS 12u
#define PAIR_BITS 6
#define PAIR_MASK 63u

enum block_kind { BLOCK_RAW, BLOCK_SAME, BLOCK_CODED };

struct code {
    uint16_t bits[SYMBOLS];  /* right-aligned */
    uint8_t length[SYMBOLS]; /* 0: not used */
    int longest, symbols;    /* symbols: the highest used, + 1 */
};

/* What the next bits of a stream mean: as many symbols as end within them. */
struct run {
    uint8_t symbol[6], n, bits;
};

_Static_assert(sizeof(struct run) == 8, "a run is one word");

struct decoder {
    int longest; /* 0: no code was seen yet */
    struct {
        uint8_t symbol, bits;
    } one[1 << BITS_MAX]; /* the first symbol alone */
    struct run run[1 << BITS_MAX];
};

struct huffman {
    uint32_t pair[1 << 16]; /* of two bytes as they lie in memory, both used: their codes, above a length of 5 bits */
    struct decoder decoder;
};

struct huffman *huffman_new(void)
{
    return malloc(sizeof(struct huffman)); /* nothing is read before it is written */
}

void huffman_free(struct huffman *h)
{
    free(h);
}

/* --- the code ---------------------------------------------------------------------------------- */

struct leaf {
    uint32_t count;
    uint8_t symbol;
};

/* Used symbols, rarest first; returns how many. */
static int sort_used(const uint32_t count[SYMBOLS], struct leaf leaf[SYMBOLS])
{
    int n = 0;

    for (int s = 0; s < SYMBOLS; s++) {
        int i = n;

        if (count[s] == 0)
            continue;
        for (; i > 0 && leaf[i - 1].count > count[s]; i--)
            leaf[i] = leaf[i - 1];
        leaf[i] = (struct leaf){count[s], (uint8_t)s};
        n++;
    }
    return n;
}

/* Depths of the leaves of Huffman's tree: the two rarest nodes join, again and again. n > 1. */
static void tree_depths(const struct leaf *leaf, int n, int depth[SYMBOLS])
{
    uint32_t count[2 * SYMBOLS];
    int parent[2 * SYMBOLS] = {0}, nodes = n, next_leaf = 0, next_node = n;

    for (int i = 0; i < n; i++)
        count[i] = leaf[i].count;
    for (; nodes < 2 * n - 1; nodes++) {
        count[nodes] = 0;
        for (int k = 0; k < 2; k++) {
            bool is_leaf = next_node == nodes || (next_leaf < n && count[next_leaf] <= count[next_node]);
            int child = is_leaf ? next_leaf++ : next_node++;

            count[nodes] += count[child];
            parent[child] = nodes;
        }
    }
    count[nodes - 1] = 0; /* from here on: depths */
    for (int i = nodes - 1; i-- > 0;)
        count[i] = count[parent[i]] + 1;
    for (int i = 0; i < n; i++)
        depth[i] = (int)count[i];
}

/* Lengths of at most BITS_MAX that still fill the space of codes exactly. Depths fall from the rarest on. */
static void limit_depths(int depth[SYMBOLS], int n)
{
    uint32_t space = 1u << BITS_MAX, used = 0;

    for (int i = 0; i < n; i++) {
        depth[i] = depth[i] < BITS_MAX ? depth[i] : BITS_MAX;
        used += space >> depth[i];
    }
    for (int i = 0; used > space; i = i + 1 < n ? i + 1 : 0) /* the rarest that can grow do */
        while (used > space && depth[i] < BITS_MAX) {
            depth[i]++;
            used -= space >> depth[i];
        }
    for (int i = n; used < space && i-- > 0;) /* room left over: to the most frequent that fit it */
        while (depth[i] > 1 && used + (space >> depth[i]) <= space) {
            used += space >> depth[i];
            depth[i]--;
        }
    assert(used == space);
}

/* Codes of a length are numbered in the order of symbols, from where those that are longer end. */
static void number_codes(struct code *c)
{
    uint16_t many[BITS_MAX + 2] = {0}, next[BITS_MAX + 2] = {0};

    for (int s = 0; s < c->symbols; s++)
        many[c->length[s]]++;
    for (int l = c->longest; l > 0; l--)
        next[l - 1] = (uint16_t)((next[l] + many[l]) >> 1);
    for (int s = 0; s < c->symbols; s++)
        if (c->length[s])
            c->bits[s] = next[c->length[s]]++;
}

/* Of at least two used symbols. */
static void make_code(const uint32_t count[SYMBOLS], struct code *c)
{
    struct leaf leaf[SYMBOLS];
    int depth[SYMBOLS], n = sort_used(count, leaf);

    assert(n > 1);
    tree_depths(leaf, n, depth);
    limit_depths(depth, n);
    *c = (struct code){.longest = depth[0]};
    for (int i = 0; i < n; i++) {
        c->length[leaf[i].symbol] = (uint8_t)depth[i];
        c->longest = depth[i] > c->longest ? depth[i] : c->longest;
        c->symbols = leaf[i].symbol >= c->symbols ? leaf[i].symbol + 1 : c->symbols;
    }
    number_codes(c);
}

/* --- encode ------------------------------------------------------------------------------------ */

/* Where stream k of n symbols begins. Of less than six symbols the last streams may have none. */
static size_t stream_begin(size_t n, int k)
{
    size_t at = (size_t)k * ((n + STREAMS - 1) / STREAMS);

    return at < n ? at : n;
}

/* How often each byte comes in each stream. Every other is counted apart: a count that is changed again at once waits
 * for itself. */
static void count_streams(const uint8_t *in, size_t n, uint32_t count[STREAMS][256])
{
    size_t whole = (n - stream_begin(n, STREAMS - 1)) & ~(size_t)1; /* the last one is the shortest */
    uint32_t other[STREAMS][256] = {0};
    const uint8_t *p[STREAMS];

    memset(count, 0, STREAMS * sizeof(*count));
    for (int k = 0; k < STREAMS; k++)
        p[k] = in + stream_begin(n, k);
    for (size_t i = 0; i < whole; i += 2) {
        count[0][p[0][i]]++;
        count[1][p[1][i]]++;
        count[2][p[2][i]]++;
        count[3][p[3][i]]++;
        other[0][p[0][i + 1]]++;
        other[1][p[1][i + 1]]++;
        other[2][p[2][i + 1]]++;
        other[3][p[3][i + 1]]++;
    }
    for (int k = 0; k < STREAMS; k++) {
        for (size_t i = whole; i < stream_begin(n, k + 1) - stream_begin(n, k); i++)
            count[k][p[k][i]]++;
        for (int s = 0; s < 256; s++)
            count[k][s] += other[k][s];
    }
}

struct bit_writer {
    uint8_t *at;
    uint64_t word;
    unsigned bits; /* below 8 between two calls of bits_flush */
};

static inline void bits_flush(struct bit_writer *w)
{
    memcpy(w->at, &w->word, 8);
    w->at += w->bits >> 3;
    w->word >>= w->bits & 56;
    w->bits &= 7;
}

static void make_pairs(struct huffman *h, const struct code *c)
{
    uint8_t used[SYMBOLS];
    int n = 0;

    for (int s = 0; s < c->symbols; s++)
        if (c->length[s])
            used[n++] = (uint8_t)s;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++) {
            unsigned first = used[i], second = used[k];
            uint32_t bits = (uint32_t)c->bits[first] << c->length[second] | c->bits[second];

            h->pair[first | second << 8] = bits << PAIR_BITS | (uint32_t)(c->length[first] + c->length[second]);
        }
}

static inline void bits_add(struct bit_writer *w, uint64_t bits, unsigned n)
{
    w->word |= bits << w->bits;
    w->bits += n;
}

/* Two pairs and the bits left over from before fit a word. */
static uint8_t *write_stream(const struct huffman *h, const struct code *c, const uint8_t *in, size_t n, uint8_t *out)
{
    struct bit_writer w = {.at = out};
    const uint8_t *p = in + n;

    for (; p - in >= 4; p -= 4) {
        uint32_t low = h->pair[le_get(p - 2, 2)], high = h->pair[le_get(p - 4, 2)];

        bits_add(&w, low >> PAIR_BITS | (uint64_t)(high >> PAIR_BITS) << (low & PAIR_MASK), (low + high) & PAIR_MASK);
        bits_flush(&w);
    }
    while (--p >= in)
        bits_add(&w, c->bits[*p], c->length[*p]);
    bits_add(&w, 1, 1);
    bits_flush(&w);
    return w.at + (w.bits > 0);
}

/* Bytes of a stream that its symbols will take. */
static size_t stream_bytes(const struct code *c, const uint32_t count[256])
{
    size_t bits = 1;

    for (int s = 0; s < c->symbols; s++)
        bits += (size_t)count[s] * c->length[s];
    return (bits + 7) / 8;
}

static uint8_t *put_weights(const struct code *c, uint8_t *out)
{
    int n = c->symbols - 1; /* that of the last symbol follows from the others */

    *out++ = (uint8_t)(127 + n);
    for (int s = 0; s < n; s++) {
        int weight = c->length[s] ? c->longest + 1 - c->length[s] : 0;

        if (s % 2)
            out[s / 2] |= (uint8_t)weight;
        else
            out[s / 2] = (uint8_t)(weight << 4);
    }
    return out + (n + 1) / 2;
}

static void put_block_head(uint8_t *out, enum block_kind kind, size_t length, bool last)
{
    le_put(out, (uint32_t)last | (uint32_t)kind << 1 | (uint32_t)length << 3, 3);
}

/* Bytes of all streams, each one's in bytes; 0: a symbol has no code. */
static size_t cost(const struct code *c, uint32_t count[STREAMS][256], const uint32_t all[SYMBOLS],
                   size_t bytes[STREAMS])
{
    size_t sum = 0;

    for (int s = 0; s < SYMBOLS; s++)
        if (all[s] && !c->length[s])
            return 0;
    for (int k = 0; k < STREAMS; k++)
        sum += bytes[k] = stream_bytes(c, count[k]);
    return sum;
}

/* The code for a block: that of the one before where another would save less than a hundredth. Returns the bytes of all
 * streams. */
static size_t choose_code(struct code *c, uint32_t count[STREAMS][256], const uint32_t all[SYMBOLS],
                          size_t bytes[STREAMS], bool *ret_known)
{
    size_t old_bytes[STREAMS], old = c->symbols ? cost(c, count, all, old_bytes) : 0, own;
    struct code now;

    make_code(all, &now);
    own = cost(&now, count, all, bytes);
    *ret_known = old && old - old / 100 <= own + (size_t)now.symbols / 2;
    if (!*ret_known) {
        *c = now;
        return own;
    }
    memcpy(bytes, old_bytes, sizeof(old_bytes));
    return old;
}

/* A block's coded content; returns its length, or 0: it would not be shorter than n, or than room. */
static size_t put_coded(struct huffman *h, struct code *c, const uint8_t *in, size_t n, uint32_t count[STREAMS][256],
                        const uint32_t all[SYMBOLS], uint8_t *out, size_t room)
{
    size_t bytes[STREAMS], sum;
    struct code before = *c;
    uint8_t *at = out + SIZES;
    bool known;

    sum = choose_code(c, count, all, bytes, &known) + JUMPS + (known ? 0 : 1 + (size_t)c->symbols / 2);
    if (SIZES + sum + 1 >= n || SIZES + sum + 1 + STREAM_SLACK > room) {
        *c = before; /* what a decoder has */
        return 0;
    }
    if (!known)
        make_pairs(h, c);
    le_put(out, (known ? CODE_KNOWN : CODE_OWN) | FOUR_STREAMS | (uint64_t)n << 4 | (uint64_t)sum << 22, SIZES);
    if (!known)
        at = put_weights(c, at);
    for (int k = 0; k + 1 < STREAMS; k++)
        le_put(at + 2 * k, bytes[k], 2);
    at += JUMPS;
    for (int k = 0; k < STREAMS; k++) {
        size_t from = stream_begin(n, k);
        uint8_t *end = write_stream(h, c, in + from, stream_begin(n, k + 1) - from, at);

        assert((size_t)(end - at) == bytes[k]);
        at = end;
    }
    *at++ = 0; /* no sequences */
    return (size_t)(at - out);
}

/* Returns the block's length with its head, or 0: not with this coder, or no room. */
static size_t put_block(struct huffman *h, struct code *c, const uint8_t *in, size_t n, bool last, uint8_t *out,
                        size_t room)
{
    uint32_t count[STREAMS][256], all[SYMBOLS];
    size_t len = 0, largest = 0, known = 0;

    count_streams(in, n, count);
    for (int s = 0; s < SYMBOLS; s++) {
        all[s] = count[0][s] + count[1][s] + count[2][s] + count[3][s];
        known += all[s];
        largest = all[s] > largest ? all[s] : largest;
    }
    if (known < n || room < BLOCK_HEAD + 1)
        return 0;
    if (largest == n) {
        put_block_head(out, BLOCK_SAME, n, last);
        out[BLOCK_HEAD] = in[0];
        return BLOCK_HEAD + 1;
    }
    if (n >= HUFFMAN_LEAST)
        len = put_coded(h, c, in, n, count, all, out + BLOCK_HEAD, room - BLOCK_HEAD);
    if (len) {
        put_block_head(out, BLOCK_CODED, len, last);
        return BLOCK_HEAD + len;
    }
    if (room < BLOCK_HEAD + n)
        return 0;
    put_block_head(out, BLOCK_RAW, n, last);
    memcpy(out + BLOCK_HEAD, in, n);
    return BLOCK_HEAD + n;
}

size_t huffman_pack(struct huffman *h, const uint8_t *in, size_t n, uint8_t *out, size_t cap)
{
    struct code c = {.symbols = 0};
    size_t len = HEADER;

    if (n < HUFFMAN_LEAST || n > UINT32_MAX || cap < HEADER)
        return 0;
    le_put(out, MAGIC, 4);
    out[4] = DESCRIPTOR;
    le_put(out + 5, n, 4);
    for (size_t at = 0, take; at < n; at += take) {
        size_t got;

        take = n - at < BLOCK ? n - at : BLOCK;
        got = put_block(h, &c, in + at, take, at + take == n, out + len, cap - len);
        if (!got)
            return 0;
        len += got;
    }
    return len;
}

/* --- decode ------------------------------------------------------------------------------------ */

static void make_runs(struct decoder *d)
{
    unsigned all = 1u << d->longest;

    for (unsigned i = 0; i < all; i++) {
        struct run r = {.n = 0};
        unsigned next = i;

        while (r.n < 6 && r.bits + d->one[next].bits <= d->longest) {
            r.symbol[r.n++] = d->one[next].symbol;
            r.bits += d->one[next].bits;
            next = i << r.bits & (all - 1);
        }
        d->run[i] = r;
    }
}

/* Weights of a code to its tables. Returns the bytes they took, or -EBADMSG. */
static int take_weights(struct decoder *d, const uint8_t *in, size_t len)
{
    uint32_t sum = 0, at = 0, all = 1;
    uint8_t weight[SYMBOLS + 1] = {0};
    int n;

    if (len < 1 || in[0] < 128)
        return -EBADMSG;
    n = in[0] - 127;
    if (len < 1 + ((size_t)n + 1) / 2)
        return -EBADMSG;
    for (int s = 0; s < n; s++) {
        weight[s] = s % 2 ? in[1 + s / 2] & 15 : in[1 + s / 2] >> 4;
        sum += weight[s] ? 1u << (weight[s] - 1) : 0;
    }
    d->longest = 0;
    for (; all <= sum && d->longest <= BITS_MAX; all *= 2)
        d->longest++;
    if (sum == 0 || d->longest > BITS_MAX || ((all - sum) & (all - sum - 1)))
        return -EBADMSG;
    while (1u << weight[n] <= all - sum) /* ends: the room left is a power of two */
        weight[n]++;
    for (int w = 1; w <= d->longest; w++)
        for (int s = 0; s <= n; s++)
            for (uint32_t i = 0; weight[s] == w && i < 1u << (w - 1); i++, at++) {
                d->one[at].symbol = (uint8_t)s;
                d->one[at].bits = (uint8_t)(d->longest + 1 - w);
            }
    make_runs(d);
    return 1 + (n + 1) / 2;
}

struct stream {
    const uint8_t *begin, *at; /* at: the word that bits came from */
    uint64_t bits;             /* what comes next on top; below what is left of the word a 1, then zeros */
    uint8_t *out, *end;
};

static inline uint64_t word_at(const uint8_t *p)
{
    uint64_t w;

    memcpy(&w, p, 8); /* little endian, as the format */
    return w;
}

/* Have 56 bits and more. There are seven bytes before at. */
static inline void refill(struct stream *s)
{
    int used = __builtin_ctzll(s->bits);

    s->at -= used >> 3;
    s->bits = (word_at(s->at) | 1) << (used & 7);
}

static inline void take_run(struct stream *s, const struct run *run, int shift)
{
    const struct run *r = &run[s->bits >> shift];

    memcpy(s->out, r, 8);
    s->out += r->n;
    s->bits <<= r->bits;
}

/* Runs from all streams at a time, as long as none of them comes near an end. */
static void take_most(const struct decoder *d, struct stream s[STREAMS])
{
    struct stream a = s[0], b = s[1], c = s[2], e = s[3];
    int shift = 64 - d->longest;

    while (a.end - a.out >= 32 && b.end - b.out >= 32 && c.end - c.out >= 32 && e.end - e.out >= 32 &&
           a.at - a.begin >= 8 && b.at - b.begin >= 8 && c.at - c.begin >= 8 && e.at - e.begin >= 8) {
        for (int i = 0; i < 5; i++) {
            take_run(&a, d->run, shift);
            take_run(&b, d->run, shift);
            take_run(&c, d->run, shift);
            take_run(&e, d->run, shift);
        }
        refill(&a);
        refill(&b);
        refill(&c);
        refill(&e);
    }
    s[0] = a;
    s[1] = b;
    s[2] = c;
    s[3] = e;
}

/* The rest of a stream, symbol by symbol. It must end with its last one. */
static int take_rest(const struct decoder *d, struct stream *s)
{
    /* bits of the stream that were not read: those before at, and what is left of the word there */
    size_t left = (size_t)(s->at - s->begin) * 8 + 64 - (size_t)__builtin_ctzll(s->bits);

    while (s->out < s->end) {
        size_t last = (left + 7) / 8, from = last < 8 ? 0 : last - 8;
        uint64_t w = le_get(s->begin + from, (int)(last - from));
        unsigned index, have = (unsigned)(left - 8 * from);

        index = (unsigned)(have < (unsigned)d->longest ? w << (d->longest - have) : w >> (have - d->longest)) &
                ((1u << d->longest) - 1);
        if (left < d->one[index].bits)
            return -EBADMSG;
        *s->out++ = d->one[index].symbol;
        left -= d->one[index].bits;
    }
    return left == 0 ? 0 : -EBADMSG;
}

/* The content of a coded block of exactly len bytes. Returns its symbols, at most room, or -EBADMSG. */
static long take_coded(struct decoder *d, const uint8_t *in, size_t len, uint8_t *out, size_t room)
{
    struct stream s[STREAMS];
    size_t n, sum, at = SIZES;
    uint64_t head;

    if (len < SIZES + JUMPS + 1)
        return -EBADMSG;
    head = le_get(in, SIZES);
    n = head >> 4 & 0x3ffff;
    sum = head >> 22;
    if ((head & 12) != FOUR_STREAMS || n < STREAMS || n > BLOCK || n > room)
        return -EBADMSG;
    if (sum != len - SIZES - 1 || in[len - 1] != 0)
        return -EBADMSG;
    if ((head & 3) == CODE_OWN) {
        int weights = take_weights(d, in + SIZES, sum);

        if (weights < 0)
            return weights;
        at += (size_t)weights;
    } else if ((head & 3) != CODE_KNOWN || d->longest == 0) {
        return -EBADMSG;
    }
    if (at + JUMPS > len - 1)
        return -EBADMSG;
    for (size_t k = 0, from = at + JUMPS; k < STREAMS; k++) {
        size_t bytes = k + 1 < STREAMS ? le_get(in + at + 2 * k, 2) : len - 1 - from;

        if (bytes < 8 || from > len - 1 || bytes > len - 1 - from || in[from + bytes - 1] == 0)
            return -EBADMSG;
        s[k] = (struct stream){.begin = in + from,
                               .at = in + from + bytes - 8,
                               .out = out + stream_begin(n, (int)k),
                               .end = out + stream_begin(n, (int)k + 1)};
        s[k].bits = word_at(s[k].at);
        s[k].bits = (s[k].bits | 1) << (__builtin_clzll(s[k].bits) + 1);
        from += bytes;
    }
    take_most(d, s);
    for (int k = 0; k < STREAMS; k++)
        if (take_rest(d, &s[k]) < 0)
            return -EBADMSG;
    return (long)n;
}

/* A block behind its head. Returns its symbols, or -EBADMSG. */
static long take_block(struct decoder *d, enum block_kind kind, const uint8_t *in, size_t len, uint8_t *out,
                       size_t room)
{
    if (kind == BLOCK_CODED)
        return take_coded(d, in, len, out, room);
    if (kind == BLOCK_RAW && len <= room) {
        memcpy(out, in, len);
        return (long)len;
    }
    return -EBADMSG;
}

int huffman_unpack(struct huffman *h, const uint8_t *in, size_t len, uint8_t *out, size_t n)
{
    struct decoder *d = &h->decoder;
    size_t at = HEADER, done = 0;
    bool last = false;

    if (len < HEADER || le_get(in, 4) != MAGIC || in[4] != DESCRIPTOR || le_get(in + 5, 4) != n)
        return -EBADMSG;
    d->longest = 0;
    while (!last) {
        uint32_t head;
        size_t size;

        if (len - at < BLOCK_HEAD)
            return -EBADMSG;
        head = (uint32_t)le_get(in + at, BLOCK_HEAD);
        at += BLOCK_HEAD;
        last = head & 1;
        size = head >> 3;
        if ((head >> 1 & 3) == BLOCK_SAME) {
            if (at == len || size > n - done || size > BLOCK)
                return -EBADMSG;
            memset(out + done, in[at++], size);
            done += size;
        } else {
            long got = size > len - at || size > BLOCK
                           ? -EBADMSG
                           : take_block(d, head >> 1 & 3, in + at, size, out + done, n - done);

            if (got < 0)
                return -EBADMSG;
            at += size;
            done += (size_t)got;
        }
    }
    return at == len && done == n ? 0 : -EBADMSG;
}
