#include "compress/codec.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/philox.h"
#include "base/try.h"
#include "compress/group.h"
#include "compress/le.h"

#define VERSION 1
#define TRAILER_BYTES 16
#define FLAGS_KNOWN CODEC_NONFINITE
#define SITE_CODEC 0x636F6463u /* "codc": apart from every other use of the job's seed */

/* Ids are on the wire: never change one, never give one twice. */
/* clang-format off */
static const struct codec table[] = {
    { .id = 1, .name = "r8", .bits = 8, .group = 128, .transform = TRANSFORM_RHT, .scale = SCALE_BF16 },
    { .id = 2, .name = "r6", .bits = 6, .group = 128, .transform = TRANSFORM_RHT, .scale = SCALE_BF16 },
    { .id = 3, .name = "r4", .bits = 4, .group = 128, .transform = TRANSFORM_RHT, .scale = SCALE_BF16 },
    { .id = 4, .name = "g8", .bits = 8, .group = 128, .scale = SCALE_F32 },
    { .id = 5, .name = "g4", .bits = 4, .group = 128, .scale = SCALE_F32 },
    { .id = 6, .name = "hs8", .bits = 8, .group = 128, .transform = TRANSFORM_H32, .scale = SCALE_F32,
      .stochastic = 1 },
    { .id = 7, .name = "hs4", .bits = 4, .group = 128, .transform = TRANSFORM_H32, .scale = SCALE_F32,
      .stochastic = 1 },
    { .id = 8, .name = "qwd8", .bits = 8, .group = 2048, .scale = SCALE_F32, .stochastic = 1 },
    { .id = 9, .name = "qwd4", .bits = 4, .group = 2048, .scale = SCALE_F32, .stochastic = 1 },
    { .id = 10, .name = "t8", .bits = 8, .fp8 = 1, .kind = FP8_E4M3, .group = 128, .transform = TRANSFORM_H,
      .scale = SCALE_F32 },
    { .id = 11, .name = "t8-paper", .bits = 8, .fp8 = 1, .kind = FP8_E4M3, .group = 128, .transform = TRANSFORM_H,
      .scale = SCALE_PAPER },
    { .id = 12, .name = "t8-g64", .bits = 8, .fp8 = 1, .kind = FP8_E4M3, .group = 64, .transform = TRANSFORM_H,
      .scale = SCALE_F32 },
    { .id = 13, .name = "t8-g256", .bits = 8, .fp8 = 1, .kind = FP8_E4M3, .group = 256, .transform = TRANSFORM_H,
      .scale = SCALE_F32 },
    { .id = 14, .name = "t8-e5m2", .bits = 8, .fp8 = 1, .kind = FP8_E5M2, .group = 256, .transform = TRANSFORM_H,
      .scale = SCALE_F32 },
};
/* clang-format on */

#define TABLE_LEN (sizeof(table) / sizeof(table[0]))

/* --- the table --------------------------------------------------------------------------------------------------- */

/* What people may look for here and find elsewhere, or nowhere. */
static const struct {
    const char *name, *why;
} elsewhere[] = {
    {"none", "means no codec: send the values as they are"},
    {"auto", "is a choice, not a codec: the collectives make it"},
    {"sdp4bit", "is a pair of codecs: hs8 inside a node and hs4 between nodes, qwd4 for weights"},
    {"plane", "is for chunks of checkpoints: it has no fixed size"},
    {"optq", "is for the moments of AdamW: its size depends on the values"},
};

static void list_names(char *to, size_t size)
{
    size_t at = 0;

    for (size_t i = 0; i < TABLE_LEN; i++) {
        int n = snprintf(to + at, size - at, "%s%s", i ? ", " : "", table[i].name);

        assert(n > 0 && (size_t)n < size - at);
        at += (size_t)n;
    }
}

int codec_by_name(const char *name, const struct codec **ret, struct merr *err)
{
    char names[256];

    for (size_t i = 0; i < TABLE_LEN; i++)
        if (!strcmp(table[i].name, name)) {
            *ret = &table[i];
            return 0;
        }
    list_names(names, sizeof(names));
    for (size_t i = 0; i < sizeof(elsewhere) / sizeof(elsewhere[0]); i++)
        if (!strcmp(elsewhere[i].name, name))
            return merr_set(err, -ENOTSUP, "'%s' %s; codecs are %s", name, elsewhere[i].why, names);
    return merr_set(err, -EINVAL, "no codec is named '%.64s'; codecs are %s", name, names);
}

const struct codec *codec_at(size_t i)
{
    return i < TABLE_LEN ? &table[i] : NULL;
}

unsigned codec_id(const struct codec *c)
{
    return c->id;
}

const char *codec_name(const struct codec *c)
{
    return c->name;
}

size_t codec_group(const struct codec *c)
{
    return c->group;
}

int codec_is_stochastic(const struct codec *c)
{
    return c->stochastic;
}

/* --- which code runs --------------------------------------------------------------------------------------------- */

/* What group_avx512.c and group_avx2.c are built for: does the processor have it, and the system keep its registers? */
#ifdef __x86_64__
static int has_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

static int has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
#endif

static int always(void)
{
    return 1;
}

/* The fastest first. */
static const struct path {
    const char *name;
    const struct group_ops *ops; /* NULL: the twin */
    int (*is_here)(void);
} paths[] = {
#ifdef __x86_64__
    {"avx512", &group_avx512, has_avx512},
    {"avx2", &group_avx2, has_avx2},
#endif
    {"plain", NULL, always},
};

#define PATHS_LEN (sizeof(paths) / sizeof(paths[0]))
#define FASTEST PATHS_LEN

static atomic_size_t path_wanted = FASTEST; /* an index of paths */

int codec_use(const char *path)
{
    size_t i = 0;

    if (!path) {
        atomic_store(&path_wanted, FASTEST);
        return 0;
    }
    while (i < PATHS_LEN && strcmp(paths[i].name, path))
        i++;
    if (i == PATHS_LEN || !paths[i].is_here())
        return -EINVAL;
    atomic_store(&path_wanted, i);
    return 0;
}

static const struct path *path_in_use(void)
{
    size_t i = atomic_load_explicit(&path_wanted, memory_order_relaxed);

    if (i == FASTEST)
        for (i = 0; !paths[i].is_here(); i++)
            ;
    return &paths[i];
}

/* The functions to call, or NULL: the twin. */
static const struct group_ops *ops_in_use(void)
{
    return path_in_use()->ops;
}

const char *codec_path(void)
{
    return path_in_use()->name;
}

const char *codec_path_at(size_t i)
{
    for (size_t at = 0; at < PATHS_LEN; at++)
        if (paths[at].is_here() && i-- == 0)
            return paths[at].name;
    return NULL;
}

/* --- layout ------------------------------------------------------------------------------------------------------ */

static size_t up16(size_t n)
{
    return (n + 15) & ~(size_t)15;
}

static size_t groups_of(const struct codec *c, size_t count)
{
    return (count + c->group - 1) / c->group;
}

size_t codec_size(const struct codec *c, size_t count)
{
    assert(count <= CODEC_COUNT_MAX);
    return up16(group_codes_bytes(c, count)) + up16(groups_of(c, count) * group_scale_bytes(c)) + TRAILER_BYTES;
}

struct view { /* the parts of a block, group by group; without a block, its shape */
    const struct codec *c;
    size_t count, groups, codes_per_group, scale_bytes, scales_at;
    const uint8_t *codes, *scales;
};

static struct view view_of(const struct codec *c, const void *block, size_t count)
{
    size_t scales_at = up16(group_codes_bytes(c, count));

    return (struct view){
        .c = c,
        .count = count,
        .groups = groups_of(c, count),
        .codes_per_group = group_codes_bytes(c, c->group),
        .scale_bytes = group_scale_bytes(c),
        .scales_at = scales_at,
        .codes = block,
        .scales = block ? (const uint8_t *)block + scales_at : NULL,
    };
}

static size_t group_len(const struct view *v, size_t g)
{
    size_t left = v->count - g * v->c->group;

    return left < v->c->group ? left : v->c->group;
}

/* Zero what lies between the parts, and write the trailer. */
static void close_block(const struct codec *c, void *block, size_t count, uint32_t flags)
{
    uint8_t *b = block;
    size_t codes = group_codes_bytes(c, count), scales = groups_of(c, count) * group_scale_bytes(c);

    memset(b + codes, 0, up16(codes) - codes);
    b += up16(codes);
    memset(b + scales, 0, up16(scales) - scales);
    b += up16(scales);
    le_put(b, flags, 4);
    b[4] = c->id;
    b[5] = VERSION;
    le_put(b + 6, 0, 2);
    le_put(b + 8, count, 8);
}

int group_trailer_check(const struct codec *c, const uint8_t trailer[16], size_t count, uint32_t *ret_flags,
                        struct merr *err)
{
    uint32_t flags = (uint32_t)le_get(trailer, 4);
    uint64_t said = le_get(trailer + 8, 8);

    if (trailer[4] != c->id)
        return merr_set(err, -EBADMSG, "want a block of codec %s (id %u), got one of id %u", c->name, c->id,
                        trailer[4]);
    if (trailer[5] != VERSION)
        return merr_set(err, -EBADMSG, "a %s block has version %u; this Muster reads version %u", c->name, trailer[5],
                        VERSION);
    if (said != count)
        return merr_set(err, -EBADMSG, "a %s block holds %llu values, not %zu", c->name, (unsigned long long)said,
                        count);
    if ((flags & ~FLAGS_KNOWN) || le_get(trailer + 6, 2))
        return merr_set(err, -EBADMSG, "a %s block carries unknown flags 0x%x", c->name, flags);
    *ret_flags = flags;
    return 0;
}

int group_size_check(const struct codec *c, size_t len, size_t count, struct merr *err)
{
    if (count > CODEC_COUNT_MAX)
        return merr_set(err, -EBADMSG, "a block of %zu values is beyond the limit of %llu", count,
                        (unsigned long long)CODEC_COUNT_MAX);
    if (len != codec_size(c, count))
        return merr_set(err, -EBADMSG, "a %s block of %zu values has %zu bytes, not %zu", c->name, count,
                        codec_size(c, count), len);
    return 0;
}

/* Does a block from outside say that it is count values of this codec? Gives its flags. */
static int check_block(const struct codec *c, const void *block, size_t len, size_t count, uint32_t *ret_flags,
                       struct merr *err)
{
    int r = group_size_check(c, len, count, err);

    return r ? r : group_trailer_check(c, (const uint8_t *)block + len - TRAILER_BYTES, count, ret_flags, err);
}

int group_bad_scale(const struct codec *c, size_t g, struct merr *err)
{
    return merr_set(err, -EBADMSG, "the scale of group %zu of a %s block is no positive finite number", g, c->name);
}

int group_bad_code(const struct codec *c, size_t g, struct merr *err)
{
    return merr_set(err, -EBADMSG, "group %zu of a %s block has a code that no encoder writes", g, c->name);
}

/* --- raw values -------------------------------------------------------------------------------------------------- */

static void plain_widen(const uint16_t *in, float *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = bf16_to_float(in[i]);
}

static void plain_narrow(const float *in, uint16_t *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (uint16_t)(bf16_round_bits(group_bits(in[i])) >> 16);
}

static void widen(const struct group_ops *ops, const uint16_t *in, float *out, size_t n)
{
    (ops ? ops->widen : plain_widen)(in, out, n);
}

static void narrow(const struct group_ops *ops, const float *in, uint16_t *out, size_t n)
{
    (ops ? ops->narrow : plain_narrow)(in, out, n);
}

/* n raw values from index at on: where they are if they are f32, else in room. */
static const float *load(const struct group_ops *ops, enum codec_type type, const void *in, size_t at, float *room,
                         size_t n)
{
    if (type == CODEC_F32)
        return (const float *)in + at;
    widen(ops, (const uint16_t *)in + at, room, n);
    return room;
}

/* --- encode ------------------------------------------------------------------------------------------------------ */

struct group_chance group_chance_at(const struct codec *c, const struct codec_site *site)
{
    struct group_chance chance = {.step = 0};

    assert(site || !c->stochastic);
    if (!c->stochastic)
        return chance;
    philox_key(site->seed, SITE_CODEC, site->tensor, 0, chance.key);
    chance.step = site->step;
    chance.micro = site->micro;
    chance.offset = site->offset;
    return chance;
}

static uint32_t encode_group(const struct group_ops *ops, const struct view *b, const struct group_chance *chance,
                             size_t g, const float *v)
{
    const struct codec *c = b->c;
    size_t n = group_len(b, g), at = g * c->group;
    uint8_t *codes = (uint8_t *)b->codes + g * b->codes_per_group; /* an encoder's view is of a block to write */
    uint8_t *scales = (uint8_t *)b->scales + g * b->scale_bytes;

    if (ops && n == c->group && ops->encode(c, chance, at, v, codes, scales) == 0)
        return 0;
    return group_plain_encode(c, chance, at, v, n, codes, scales);
}

uint32_t codec_encode(const struct codec *c, const struct codec_site *site, enum codec_type type, const void *in,
                      size_t count, void *block)
{
    const struct group_ops *ops = ops_in_use();
    struct group_chance chance = group_chance_at(c, site);
    struct view b = view_of(c, block, count);
    GROUP_ALIGNED float room[GROUP_MAX];
    uint32_t flags = 0;

    assert(count <= CODEC_COUNT_MAX);
    for (size_t g = 0; g < b.groups; g++)
        flags |= encode_group(ops, &b, &chance, g, load(ops, type, in, g * c->group, room, group_len(&b, g)));
    close_block(c, block, count, flags);
    return flags;
}

/* Differences of n values from index at on: in bf16 if the replica is. */
static void subtract(const struct group_ops *ops, const float *master, enum codec_type type, const void *replica,
                     size_t at, float *out, size_t n)
{
    if (type == CODEC_BF16)
        (ops ? ops->subtract : group_subtract)(master + at, (const uint16_t *)replica + at, out, n);
    for (size_t i = 0; type == CODEC_F32 && i < n; i++)
        out[i] = master[at + i] - ((const float *)replica)[at + i];
}

uint32_t codec_encode_difference(const struct codec *c, const struct codec_site *site, const float *master,
                                 enum codec_type type, const void *replica, size_t count, void *block)
{
    const struct group_ops *ops = ops_in_use();
    struct group_chance chance = group_chance_at(c, site);
    struct view b = view_of(c, block, count);
    GROUP_ALIGNED float room[GROUP_MAX];
    uint32_t flags = 0;

    assert(count <= CODEC_COUNT_MAX);
    for (size_t g = 0; g < b.groups; g++) {
        subtract(ops, master, type, replica, g * c->group, room, group_len(&b, g));
        flags |= encode_group(ops, &b, &chance, g, room);
    }
    close_block(c, block, count, flags);
    return flags;
}

/* --- decode ------------------------------------------------------------------------------------------------------ */

static int decode_group(const struct group_ops *ops, const struct view *b, size_t g, float *out, struct merr *err)
{
    const struct codec *c = b->c;
    const uint8_t *codes = b->codes + g * b->codes_per_group;
    size_t n = group_len(b, g);
    struct group_scales s;
    int bad;

    if (group_scales_read(c, b->scales + g * b->scale_bytes, &s))
        return group_bad_scale(c, g, err);
    if (!ops || n < c->group || ops->decode(c, codes, s, out, &bad))
        bad = group_plain_decode(c, codes, s, out, n);
    return bad ? group_bad_code(c, g, err) : 0;
}

/* Decode all groups of a block; out NULL: only see whether each is such as an encoder writes. */
static int decode_groups(const struct group_ops *ops, const struct codec *c, const void *block, enum codec_type type,
                         void *out, size_t count, struct merr *err)
{
    const struct view b = view_of(c, block, count);
    GROUP_ALIGNED float room[GROUP_MAX];

    for (size_t g = 0; g < b.groups; g++) {
        int r = decode_group(ops, &b, g, out && type == CODEC_F32 ? (float *)out + g * c->group : room, err);

        if (r)
            return r;
        if (out && type == CODEC_BF16)
            narrow(ops, room, (uint16_t *)out + g * c->group, group_len(&b, g));
    }
    return 0;
}

int codec_decode(const struct codec *c, const void *block, size_t len, enum codec_type type, void *out, size_t count,
                 uint32_t *ret_flags, struct merr *err)
{
    uint32_t flags;

    TRY(check_block(c, block, len, count, &flags, err));
    TRY(decode_groups(ops_in_use(), c, block, type, out, count, err));
    *ret_flags |= flags;
    return 0;
}

static void add_difference(const struct group_ops *ops, const float *d, enum codec_type type, void *replica, size_t at,
                           size_t n)
{
    float *full = replica;

    if (type == CODEC_BF16)
        (ops ? ops->add_rounded : group_add_rounded)(d, (uint16_t *)replica + at, n);
    for (size_t i = 0; type == CODEC_F32 && i < n; i++)
        full[at + i] += d[i];
}

int codec_decode_add(const struct codec *c, const void *block, size_t len, enum codec_type type, void *replica,
                     size_t count, uint32_t *ret_flags, struct merr *err)
{
    const struct group_ops *ops = ops_in_use();
    const struct view b = view_of(c, block, count);
    GROUP_ALIGNED float room[GROUP_MAX];
    uint32_t flags;
    int r = check_block(c, block, len, count, &flags, err);

    if (r == 0) /* first: a replica half changed is lost */
        r = decode_groups(ops, c, block, type, NULL, count, err);
    for (size_t g = 0; r == 0 && g < b.groups; g++) {
        r = decode_group(ops, &b, g, room, err);
        assert(r == 0);
        add_difference(ops, room, type, replica, g * c->group, group_len(&b, g));
    }
    if (r == 0)
        *ret_flags |= flags;
    return r;
}

/* --- reduce ------------------------------------------------------------------------------------------------------ */

/* Check all blocks of parts and gather their flags. */
static int check_parts(const struct codec *c, const struct codec_parts *p, size_t count, uint32_t *ret_flags,
                       struct merr *err)
{
    uint32_t all = 0, flags = 0;
    size_t raw = 0;

    for (size_t i = 0; i < p->n; i++) {
        if (!p->blocks[i]) {
            raw++;
            continue;
        }
        if (check_block(c, p->blocks[i], p->len, count, &flags, err))
            return merr_prefix(err, -EBADMSG, "block %zu of %zu", i, p->n);
        all |= flags;
    }
    assert(raw == 0 || (raw == 1 && p->own));
    *ret_flags = all;
    return 0;
}

/* The power of two with which the numbers of group g are added: 1 but for huge ones. Refuses scales that are none. */
static int power_of_group(const struct view *shape, const struct codec_parts *p, size_t g, const float *own,
                          float *ret_pre, struct merr *err)
{
    size_t n = group_len(shape, g);
    struct group_scales s;

    *ret_pre = 1;
    for (size_t i = 0; i < p->n; i++) {
        const uint8_t *block = p->blocks[i];

        if (!block)
            continue;
        if (group_scales_read(shape->c, block + shape->scales_at + g * shape->scale_bytes, &s)) {
            (void)group_bad_scale(shape->c, g, err);
            return merr_prefix(err, -EBADMSG, "block %zu of %zu", i, p->n);
        }
        if (s.s > GROUP_LARGE * s.alpha)
            *ret_pre = 0x1p-64f;
    }
    for (size_t i = 0; own && i < n; i++) {
        uint32_t magnitude = group_bits(own[i]) & 0x7FFFFFFF;

        if (magnitude > group_bits(GROUP_LARGE) && magnitude < 0x7F800000)
            *ret_pre = 0x1p-64f;
    }
    return 0;
}

static int add_block(const struct group_ops *ops, const struct view *shape, const uint8_t *block, size_t g, float pre,
                     float *sum)
{
    const struct codec *c = shape->c;
    const uint8_t *codes = block + g * shape->codes_per_group;
    size_t n = group_len(shape, g);
    struct group_scales s = {.alpha = 1};
    int bad;

    if (group_scales_read(c, block + shape->scales_at + g * shape->scale_bytes, &s))
        return -1;
    if (!ops || n < c->group || pre != 1 || ops->add(c, codes, s, sum, &bad))
        bad = group_plain_add(c, codes, s, pre, sum, n);
    return bad;
}

/* The coefficients of group g, added up times *ret_pre. */
static int sum_group(const struct group_ops *ops, const struct view *shape, const struct codec_parts *p, size_t g,
                     float *sum, float *ret_pre, uint32_t *flags, struct merr *err)
{
    const struct codec *c = shape->c;
    GROUP_ALIGNED float room[GROUP_MAX];
    size_t n = group_len(shape, g);
    const float *own = p->own ? load(ops, p->own_type, p->own, g * c->group, room, n) : NULL;
    int r = power_of_group(shape, p, g, own, ret_pre, err);

    if (r)
        return r;
    memset(sum, 0, n * sizeof(sum[0]));
    for (size_t i = 0; i < p->n; i++) {
        if (!p->blocks[i]) {
            if (!ops || n < c->group || *ret_pre != 1 || ops->add_own(c, own, sum))
                *flags |= group_plain_add_own(c, own, *ret_pre, sum, n);
        } else if (add_block(ops, shape, p->blocks[i], g, *ret_pre, sum)) {
            (void)group_bad_code(c, g, err);
            return merr_prefix(err, -EBADMSG, "block %zu of %zu", i, p->n);
        }
    }
    return 0;
}

int codec_decode_reduce(const struct codec *c, const struct codec_parts *parts, enum codec_type type, void *out,
                        size_t count, uint32_t *ret_flags, struct merr *err)
{
    const struct group_ops *ops = ops_in_use();
    const struct view all = view_of(c, NULL, count);
    GROUP_ALIGNED float sum[GROUP_MAX], pre;
    uint32_t flags;
    int r = check_parts(c, parts, count, &flags, err);

    for (size_t g = 0; r == 0 && g < all.groups; g++) {
        size_t n = group_len(&all, g);

        r = sum_group(ops, &all, parts, g, sum, &pre, &flags, err);
        if (r)
            break;
        if (!ops || n < c->group || pre != 1 || ops->finish(c, sum))
            group_plain_finish(c, pre, sum, n);
        if (type == CODEC_BF16)
            narrow(ops, sum, (uint16_t *)out + g * c->group, n);
        else
            memcpy((float *)out + g * c->group, sum, n * sizeof(sum[0]));
    }
    if (r == 0)
        *ret_flags |= flags;
    return r;
}

int group_share_check(const struct codec *c, const struct codec *to, struct merr *err)
{
    if (to->group != c->group || to->transform != c->transform)
        return merr_set(err, -EINVAL,
                        "cannot encode sums of %s blocks as %s: the two transform differently; decode "
                        "them first",
                        c->name, to->name);
    return 0;
}

int codec_decode_reduce_encode(const struct codec *c, const struct codec_parts *parts, const struct codec *to,
                               const struct codec_site *site, void *block, size_t count, uint32_t *ret_flags,
                               struct merr *err)
{
    const struct group_ops *ops = ops_in_use();
    const struct view from = view_of(c, NULL, count), b = view_of(to, block, count);
    struct group_chance chance;
    GROUP_ALIGNED float sum[GROUP_MAX], pre;
    uint32_t flags;
    int r;

    r = group_share_check(c, to, err);
    if (r)
        return r;
    r = check_parts(c, parts, count, &flags, err);
    if (r)
        return r;
    chance = group_chance_at(to, site);
    for (size_t g = 0; g < b.groups; g++) {
        size_t n = group_len(&b, g), at = g * to->group;
        uint8_t *codes = (uint8_t *)b.codes + g * b.codes_per_group, *scales = (uint8_t *)b.scales + g * b.scale_bytes;

        r = sum_group(ops, &from, parts, g, sum, &pre, &flags, err);
        if (r)
            return r;
        if (!ops || n < to->group || pre != 1 || ops->quantise(to, &chance, at, sum, codes, scales))
            flags |= group_plain_quantise(to, &chance, at, sum, pre, n, codes, scales);
    }
    close_block(to, block, count, flags);
    *ret_flags |= flags;
    return 0;
}
