#include <errno.h>

#include "api/state/call.h"
#include "base/try.h"
#include "compress/codec.h"

/* A codec lives for ever, and is known outside by its place alone. */
static const struct codec *codec_of(const mcodec *c)
{
    return (const struct codec *)c;
}

static int check_call(int32_t type, size_t n)
{
    if (type != MCODEC_F32 && type != MCODEC_BF16)
        return merr_set(call_error(), -EINVAL, "values of type %d are not coded", type);
    if (n > CODEC_COUNT_MAX)
        return merr_set(call_error(), -EINVAL, "a block holds at most %llu values",
                        (unsigned long long)CODEC_COUNT_MAX);
    return 0;
}

static enum codec_type type_of(int32_t type)
{
    return type == MCODEC_BF16 ? CODEC_BF16 : CODEC_F32;
}

static int read_site(const struct mcodec_site *site, struct codec_site *ret)
{
    struct mcodec_site s = {0};

    if (site)
        TRY(call_struct(&s, sizeof(s), site, "struct mcodec_site"));
    *ret =
        (struct codec_site){.seed = s.seed, .tensor = s.tensor, .step = s.step, .micro = s.micro, .offset = s.offset};
    return 0;
}

static int read_parts(const struct mcodec_parts *parts, size_t n, struct codec_parts *ret)
{
    struct mcodec_parts p;
    int own = 0;

    TRY(call_struct(&p, sizeof(p), parts, "struct mcodec_parts"));
    TRY(check_call(p.own_type, n));
    for (size_t i = 0; i < p.n; i++)
        own += !p.blocks[i];
    if (own > 1 || own != (p.own != NULL))
        return merr_set(call_error(), -EINVAL, "one of the parts is uncoded, or none: then own is NULL");
    *ret =
        (struct codec_parts){.blocks = p.blocks, .n = p.n, .len = p.len, .own = p.own, .own_type = type_of(p.own_type)};
    return 0;
}

static void add_flags(uint32_t *flags, uint32_t more)
{
    if (flags)
        *flags |= more;
}

EXPORTED int mcodec_find(const char *name, const mcodec **ret)
{
    const struct codec *c;

    TRY(codec_by_name(name, &c, call_error()));
    *ret = (const mcodec *)c;
    return 0;
}

EXPORTED size_t mcodec_group(const mcodec *codec)
{
    return codec_group(codec_of(codec));
}

EXPORTED size_t mcodec_size(const mcodec *codec, size_t n)
{
    return n <= CODEC_COUNT_MAX ? codec_size(codec_of(codec), n) : 0;
}

EXPORTED int mcodec_encode(const mcodec *codec, const struct mcodec_site *site, int32_t type, const void *values,
                           size_t n, void *block, uint32_t *flags)
{
    struct codec_site s;

    TRY(check_call(type, n));
    TRY(read_site(site, &s));
    add_flags(flags, codec_encode(codec_of(codec), &s, type_of(type), values, n, block));
    return 0;
}

EXPORTED int mcodec_decode(const mcodec *codec, const void *block, size_t len, int32_t type, void *values, size_t n,
                           uint32_t *flags)
{
    uint32_t found = 0;

    TRY(check_call(type, n));
    TRY(codec_decode(codec_of(codec), block, len, type_of(type), values, n, &found, call_error()));
    add_flags(flags, found);
    return 0;
}

EXPORTED int mcodec_reduce(const mcodec *codec, const struct mcodec_parts *parts, int32_t type, void *values, size_t n,
                           uint32_t *flags)
{
    struct codec_parts p;
    uint32_t found = 0;

    TRY(check_call(type, n));
    TRY(read_parts(parts, n, &p));
    TRY(codec_decode_reduce(codec_of(codec), &p, type_of(type), values, n, &found, call_error()));
    add_flags(flags, found);
    return 0;
}

EXPORTED int mcodec_reduce_encode(const mcodec *codec, const struct mcodec_parts *parts, const mcodec *to,
                                  const struct mcodec_site *site, void *block, size_t n, uint32_t *flags)
{
    struct codec_parts p;
    struct codec_site s;
    uint32_t found = 0;

    TRY(read_parts(parts, n, &p));
    TRY(read_site(site, &s));
    TRY(codec_decode_reduce_encode(codec_of(codec), &p, codec_of(to), &s, block, n, &found, call_error()));
    add_flags(flags, found);
    return 0;
}
