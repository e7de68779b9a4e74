/* Whatever is changed in a committed checkpoint is named, and none of it is ever loaded. */
#include "tests/unit/checkpoint/two.h"

#include <fcntl.h>
#include <stddef.h>

#include "base/hash.h"
#include "checkpoint/format/format.h"
#include "checkpoint/write/collect.h"

static int setup(void **state)
{
    (void)state;
    set_up_two(99, 3, 700, 300, 350);
    return 0;
}

static struct buf read_whole(const char *path)
{
    struct buf b;

    buf_init(&b, 64u << 20);
    assert_int_equal(io_read_file(path, &b, NULL), 0);
    return b;
}

static void put(const char *path, const void *data, size_t len)
{
    assert_int_equal(io_write_file(path, data, len, 0644, NULL), 0);
}

/* What verify and load say of a step. Both refuse with words, or both take it. */
static bool is_sound(uint64_t step, char *words, size_t size)
{
    struct merr err = {.text = ""};
    json_t *report = NULL;
    struct mck *c;
    int r = mck_open(dir, step, &c, &err);

    if (!r) {
        r = mck_verify(c, &report, &err);
        assert_int_equal(json_is_true(json_object_get(report, "ok")), r == 0);
        json_decref(report);
        mck_free(c);
    }
    if (r) {
        assert_true(r == -EBADMSG || r == -ENOENT);
        assert_true(strlen(err.text) > 0);
    }
    (void)snprintf(words, size, "%s", err.text);
    return r == 0;
}

/* A load that succeeds gives what was saved. */
static void load_gives_no_other_bytes(uint64_t step)
{
    struct merr err = {.text = ""};
    struct mck *c;

    if (mck_open(dir, step, &c, &err))
        return;
    wipe_layout(two);
    if (!mck_load(c, two->buf[0], two->n[0], &err) && !mck_load(c, two->buf[1], two->n[1], &err))
        check_layout(&model, two, 1);
    mck_free(c);
    fill_layout(&model, two, 1);
}

static void a_file_cut_anywhere_is_refused(void **state)
{
    static const char *const names[] = {"rank-00000.mck", "rank-00001.mck", "MANIFEST"};
    char words[1024];

    (void)state;
    save_two(1, 10, "plane");
    for (size_t k = 0; k < COUNT(names); k++) {
        struct buf b = read_whole(in_step(10, names[k]));
        const size_t cut[] = {0, 1, 79, 4095, 4096, 4097, b.len / 2, b.len - 4097, b.len - 4096, b.len - 24, b.len - 1};

        for (size_t i = 0; i < COUNT(cut); i++) {
            if (cut[i] >= b.len)
                continue;
            put(in_step(10, names[k]), b.data, cut[i]);
            if (is_sound(10, words, sizeof(words)))
                fail_msg("'%s' cut to %zu of %zu bytes is taken", names[k], cut[i], b.len);
            load_gives_no_other_bytes(10);
        }
        put(in_step(10, names[k]), b.data, b.len);
        assert_true(is_sound(10, words, sizeof(words)));
        buf_clear(&b);
    }
}

static void a_file_of_another_rank_step_or_attempt_is_refused(void **state)
{
    static const struct {
        uint64_t from_step;
        const char *from, *to;
    } swap[] = {
        {10, "rank-00001.mck", "rank-00000.mck"}, {20, "rank-00000.mck", "rank-00000.mck"},
        {20, "rank-00001.mck", "rank-00001.mck"}, {20, "MANIFEST", "MANIFEST"},
        {10, "MANIFEST", "rank-00000.mck"},       {10, "rank-00000.mck", "MANIFEST"},
    };
    char words[1024];

    (void)state;
    save_two(1, 10, "none");
    save_two(1, 20, "none");
    for (size_t i = 0; i < COUNT(swap); i++) {
        struct buf was = read_whole(in_step(10, swap[i].to));
        struct buf other = read_whole(in_step(swap[i].from_step, swap[i].from));

        put(in_step(10, swap[i].to), other.data, other.len);
        if (is_sound(10, words, sizeof(words)))
            fail_msg("'%s' of step %d is taken for '%s' of step 10", swap[i].from, (int)swap[i].from_step, swap[i].to);
        put(in_step(10, swap[i].to), was.data, was.len);
        assert_true(is_sound(10, words, sizeof(words)));
        buf_clear(&was);
        buf_clear(&other);
    }
}

static void a_folder_of_another_step_is_refused(void **state)
{
    struct merr err = {.text = ""};
    char from[256], to[256];
    struct mck *c;
    uint64_t step;

    (void)state;
    save_two(1, 10, "none");
    (void)snprintf(from, sizeof(from), "%s", in_step(10, ""));
    (void)snprintf(to, sizeof(to), "%s", in_step(30, ""));
    assert_int_equal(rename(from, to), 0);
    assert_int_equal(mck_open(dir, 30, &c, &err), -EBADMSG);
    assert_non_null(strstr(err.text, "step 10"));
    assert_int_equal(mck_latest(dir, &step, NULL, &err), 0);
}

static void a_missing_file_is_named_with_what_it_held(void **state)
{
    char words[1024];

    (void)state;
    save_two(1, 10, "none");
    assert_int_equal(unlink(in_step(10, "rank-00001.mck")), 0);
    assert_false(is_sound(10, words, sizeof(words)));
    assert_non_null(strstr(words, "rank-00001.mck"));
    assert_non_null(strstr(words, "layer.0.weight"));
    load_gives_no_other_bytes(10);
}

/* --- a MANIFEST whose checksums all fit ----------------------------------------------------------- */

static struct mck_section *section(struct buf *b, uint32_t kind)
{
    struct mck_head *h = (struct mck_head *)b->data;

    for (uint32_t i = 0; i < h->section_count && i < MCK_SECTIONS_MAX; i++)
        if (h->section[i].kind == kind)
            return &h->section[i];
    fail_msg("no section %u", kind);
    return NULL;
}

static void seal(struct buf *b)
{
    struct mck_head *h = (struct mck_head *)b->data;
    struct mck_end end;

    for (uint32_t i = 0; i < h->section_count && i < MCK_SECTIONS_MAX; i++) {
        struct mck_section *s = &h->section[i];

        if (s->off <= b->len && s->len <= b->len - s->off)
            s->crc32c = hash_crc32c(0, b->data + s->off, s->len);
    }
    h->crc32c = hash_crc32c(0, h, offsetof(struct mck_head, crc32c));
    memcpy(&end, b->data + b->len - sizeof(end), sizeof(end));
    end.xxh3 = hash_xxh3(b->data, b->len - sizeof(end));
    memcpy(b->data + b->len - sizeof(end), &end, sizeof(end));
}

#define IN(kind, type, field) kind, offsetof(struct type, field), sizeof(((struct type *)0)->field)

static void hostile_sizes_in_a_sealed_manifest_are_refused(void **state)
{
    static const struct { /* section 0: the head */
        const char *what;
        uint32_t kind;
        size_t at, size;
    } field[] = {
        {"version", IN(0, mck_head, version)},
        {"header length", IN(0, mck_head, hdr_len)},
        {"log2 of a chunk", IN(0, mck_head, chunk_log2)},
        {"alignment", IN(0, mck_head, align)},
        {"number of sections", IN(0, mck_head, section_count)},
        {"kind of a section", IN(0, mck_head, section[0].kind)},
        {"offset of a section", IN(0, mck_head, section[2].off)},
        {"length of a section", IN(0, mck_head, section[3].len)},
        {"file's name", IN(MCK_FILES, mck_file, name_off)},
        {"file's name's length", IN(MCK_FILES, mck_file, name_len)},
        {"file's stream", IN(MCK_FILES, mck_file, stream_len)},
        {"file's length", IN(MCK_FILES, mck_file, file_len)},
        {"file's first chunk", IN(MCK_FILES, mck_file, chunk_first)},
        {"file's chunks", IN(MCK_FILES, mck_file, chunk_count)},
        {"tensor's name", IN(MCK_TENSORS, mck_tensor, name_off)},
        {"tensor's name's length", IN(MCK_TENSORS, mck_tensor, name_len)},
        {"tensor's type", IN(MCK_TENSORS, mck_tensor, dtype)},
        {"tensor's dims", IN(MCK_TENSORS, mck_tensor, ndim)},
        {"tensor's first shard", IN(MCK_TENSORS, mck_tensor, shard_first)},
        {"tensor's shards", IN(MCK_TENSORS, mck_tensor, shard_count)},
        {"tensor's first size", IN(MCK_TENSORS, mck_tensor, shape[0])},
        {"shard's tensor", IN(MCK_SHARDS, mck_shard, tensor)},
        {"shard's file", IN(MCK_SHARDS, mck_shard, file_id)},
        {"shard's place", IN(MCK_SHARDS, mck_shard, stream_off)},
        {"shard's bytes", IN(MCK_SHARDS, mck_shard, bytes)},
        {"shard's end", IN(MCK_SHARDS, mck_shard, sub_end)},
        {"shard's box", IN(MCK_SHARDS, mck_shard, len[0])},
        {"chunk's place", IN(MCK_CHUNKS, mck_chunk, file_off)},
        {"chunk's bytes", IN(MCK_CHUNKS, mck_chunk, stored_len)},
        {"chunk's codec", IN(MCK_CHUNKS, mck_chunk, codec)},
        {"chunk's filter", IN(MCK_CHUNKS, mck_chunk, filter)},
        {"chunk's logical bytes", IN(MCK_CHUNKS, mck_chunk, logical_len)},
    };
    static const uint64_t hostile[] = {UINT64_MAX, INT64_MAX, UINT64_C(1) << 62, 0x7fffffff, 0x80000000u, 65537};
    char words[1024];

    (void)state;
    save_two(1, 10, "none");
    for (size_t i = 0; i < COUNT(field); i++)
        for (size_t k = 0; k < COUNT(hostile); k++) {
            struct buf b = read_whole(in_step(10, "MANIFEST")), was = read_whole(in_step(10, "MANIFEST"));
            size_t from = field[i].kind ? section(&b, field[i].kind)->off : 0;

            memcpy(b.data + from + field[i].at, &hostile[k], field[i].size);
            seal(&b);
            if (memcmp(b.data, was.data, b.len) != 0) { /* 2^62 in four bytes is no more than 0 */
                put(in_step(10, "MANIFEST"), b.data, b.len);
                if (is_sound(10, words, sizeof(words)))
                    fail_msg("%s of %llx is taken", field[i].what, (unsigned long long)hostile[k]);
                load_gives_no_other_bytes(10);
                put(in_step(10, "MANIFEST"), was.data, was.len);
            }
            buf_clear(&b);
            buf_clear(&was);
        }
    assert_true(is_sound(10, words, sizeof(words)));
}

static void a_sealed_manifest_that_moves_a_shard_onto_another_is_refused(void **state)
{
    static const uint64_t rows[] = {0, 1, 349};
    char words[1024];

    (void)state;
    save_two(1, 10, "none");
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct buf b = read_whole(in_step(10, "MANIFEST")), was = read_whole(in_step(10, "MANIFEST"));
        struct mck_shard *s = (struct mck_shard *)(b.data + section(&b, MCK_SHARDS)->off);

        assert_int_equal(s[1].off[0], 350); /* as many elements are stored as there are, but some of them twice */
        s[1].off[0] = rows[i];
        seal(&b);
        put(in_step(10, "MANIFEST"), b.data, b.len);
        assert_false(is_sound(10, words, sizeof(words)));
        assert_non_null(strstr(words, "both store the same elements"));
        load_gives_no_other_bytes(10);
        put(in_step(10, "MANIFEST"), was.data, was.len);
        buf_clear(&b);
        buf_clear(&was);
    }
}

static void a_pipe_in_the_place_of_a_file_is_refused_at_once(void **state)
{
    static const char *const names[] = {"rank-00000.mck", "MANIFEST"};
    struct merr err = {.text = ""};
    char words[1024];
    uint64_t step;

    (void)state;
    save_two(1, 10, "none");
    (void)alarm(20); /* would wait for somebody to write for ever */
    for (size_t i = 0; i < COUNT(names); i++) {
        assert_int_equal(unlink(in_step(10, names[i])), 0);
        assert_int_equal(mkfifo(in_step(10, names[i]), 0600), 0);
        assert_false(is_sound(10, words, sizeof(words)));
        assert_int_equal(mck_latest(dir, &step, NULL, &err), 0);
        assert_int_equal(collect_folder(dir, 2, 0, &err), 0);
    }
    (void)alarm(0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, tear_down_two)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_file_cut_anywhere_is_refused),
        T(a_file_of_another_rank_step_or_attempt_is_refused),
        T(a_folder_of_another_step_is_refused),
        T(a_missing_file_is_named_with_what_it_held),
        T(hostile_sizes_in_a_sealed_manifest_are_refused),
        T(a_sealed_manifest_that_moves_a_shard_onto_another_is_refused),
        T(a_pipe_in_the_place_of_a_file_is_refused_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
