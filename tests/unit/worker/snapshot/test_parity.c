/* Parity over nodes: placement, the one lost stream made again, the file and what damages it. */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "worker/snapshot/parity.h"
#include "worker/snapshot/stream.h"

#define ROUNDS 60

static uint64_t rng;

static uint64_t rnd(uint64_t n)
{
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return (rng >> 11) % n;
}

static void seed(void)
{
    const char *s = getenv("MUSTER_SEED");

    rng = s ? strtoull(s, NULL, 10) : (uint64_t)clock_wall_us();
    rng += !rng;
    print_message("MUSTER_SEED=%llu\n", (unsigned long long)rng);
}

/* --- a group in memory ----------------------------------------------------------------------------------- */

struct group {
    struct parity p;
    struct parity_part part[PARITY_NODES_MAX * 3];
    char *stream[PARITY_NODES_MAX]; /* padded to all segments */
    char *parity[PARITY_NODES_MAX];
};

/* Streams of odd lengths, of one to three parts, some far shorter than others. */
static void make_group(struct group *g, uint32_t nodes, uint64_t longest)
{
    *g = (struct group){.p = {.step = 7, .nodes = nodes, .writers = 3 * nodes, .part = g->part}};
    for (uint32_t i = 0; i < nodes; i++) {
        struct parity_member *m = &g->p.member[i];

        *m = (struct parity_member){.first = g->p.parts, .parts = 1 + (uint32_t)rnd(3)};
        for (uint32_t k = 0; k < m->parts; k++) {
            struct parity_part *q = &g->part[g->p.parts++];

            *q = (struct parity_part){.rank = i * 3 + k, .bytes = 1 + rnd(rnd(4) ? longest : 3)};
            m->bytes += q->bytes;
        }
    }
    g->p.segment = parity_segment(&g->p);
    for (uint32_t i = 0; i < nodes; i++) {
        g->stream[i] = calloc(nodes - 1, g->p.segment);
        g->parity[i] = calloc(1, g->p.segment);
        assert_true(g->stream[i] && g->parity[i]);
        for (uint64_t k = 0; k < g->p.member[i].bytes; k++)
            g->stream[i][k] = (char)rnd(256);
    }
    for (uint32_t j = 0; j < nodes; j++)
        for (uint32_t i = 0; i < nodes; i++)
            if (i != j)
                parity_xor(g->parity[j], g->stream[i] + parity_at(&g->p, i, j), g->p.segment);
}

static void clear_group(struct group *g)
{
    for (uint32_t i = 0; i < g->p.nodes; i++) {
        free(g->stream[i]);
        free(g->parity[i]);
    }
}

static void any_one_stream_can_be_made_again_from_the_others_and_their_parity(void **state)
{
    (void)state;
    seed();
    for (int round = 0; round < ROUNDS; round++) {
        uint32_t nodes = 2 + (uint32_t)rnd(PARITY_NODES_MAX - 1), lost = (uint32_t)rnd(nodes);
        struct group g;
        char *again;

        make_group(&g, nodes, 30000);
        again = calloc(nodes - 1, g.p.segment);
        assert_non_null(again);
        for (uint32_t j = 0; j < nodes; j++) {
            if (j == lost)
                continue;
            parity_xor(again + parity_at(&g.p, lost, j), g.parity[j], g.p.segment);
            for (uint32_t i = 0; i < nodes; i++)
                if (i != j && i != lost)
                    parity_xor(again + parity_at(&g.p, lost, j), g.stream[i] + parity_at(&g.p, i, j), g.p.segment);
        }
        assert_memory_equal(again, g.stream[lost], (nodes - 1) * g.p.segment);
        free(again);
        clear_group(&g);
    }
}

static void every_segment_of_a_stream_is_in_one_parity_and_none_in_its_own(void **state)
{
    (void)state;
    for (uint32_t nodes = 2; nodes <= PARITY_NODES_MAX; nodes++) {
        struct parity p = {.nodes = nodes, .segment = 4096};

        for (uint32_t i = 0; i < nodes; i++) {
            unsigned seen = 0;

            for (uint32_t j = 0; j < nodes; j++)
                if (j != i)
                    seen |= 1u << parity_at(&p, i, j) / p.segment;
            assert_int_equal(seen, (1u << (nodes - 1)) - 1);
        }
    }
}

static void parity_costs_one_share_of_the_longest_stream(void **state)
{
    static const struct {
        uint32_t nodes;
        uint64_t bytes, segment;
    } edge[] = {{2, 1, 4096}, {2, 4096, 4096}, {2, 4097, 8192}, {3, 8192, 4096}, {3, 8193, 8192}, {8, 7 * 4096, 4096}};

    (void)state;
    for (size_t i = 0; i < COUNT(edge); i++) {
        struct parity p = {.nodes = edge[i].nodes};

        p.member[edge[i].nodes - 1].bytes = edge[i].bytes;
        assert_int_equal(parity_segment(&p), edge[i].segment);
    }
}

static void groups_share_all_nodes_and_leave_none_alone(void **state)
{
    (void)state;
    for (int nodes = 2; nodes < 200; nodes++) {
        int next = 0;

        for (int node = 0; node < nodes; node++) {
            int first, n;

            parity_group(nodes, node, &first, &n);
            assert_true(n >= 2 && n <= PARITY_NODES_MAX && first <= node && node < first + n);
            if (node == next)
                assert_int_equal(first, next);
            next = first + n;
        }
        assert_int_equal(next, nodes);
    }
}

/* --- files ----------------------------------------------------------------------------------------------- */

static char folder[64];

static int set_up(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof(folder), "/tmp/muster-test-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    return io_remove_tree(folder, NULL);
}

static char *in_folder(const char *name)
{
    static char path[128];

    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

static void write_parity(struct group *g, uint32_t index)
{
    int fd;

    g->p.index = index;
    g->p.sum = calloc(parity_pieces(&g->p), sizeof(*g->p.sum));
    assert_non_null(g->p.sum);
    assert_int_equal(parity_create(in_folder(PARITY_NAME), &g->p, &fd, NULL), 0);
    for (uint32_t i = 0; i < parity_pieces(&g->p); i++)
        assert_int_equal(parity_write(fd, &g->p, i, g->parity[index] + (size_t)i * PARITY_PIECE, NULL), 0);
    assert_int_equal(parity_seal(fd, &g->p, NULL), 0);
    io_close(&fd);
    free(g->p.sum);
}

static void a_file_reads_as_it_was_written(void **state)
{
    char *piece = malloc(PARITY_PIECE);
    struct parity p;
    struct group g;
    int fd;

    (void)state;
    seed();
    make_group(&g, 3, 3 << 20);
    write_parity(&g, 1);
    assert_int_equal(parity_read(in_folder(PARITY_NAME), &p, NULL), 0);
    assert_int_equal(p.segment, g.p.segment);
    assert_int_equal(p.index, 1);
    assert_memory_equal(p.part, g.part, p.parts * sizeof(*p.part));
    fd = open(in_folder(PARITY_NAME), O_RDWR | O_CLOEXEC);
    for (uint32_t i = 0; i < parity_pieces(&p); i++) {
        assert_int_equal(parity_read_piece(fd, &p, i, piece, NULL), 0);
        assert_memory_equal(piece, g.parity[1] + (size_t)i * PARITY_PIECE, parity_piece_bytes(&p, i));
    }
    assert_int_equal(pwrite(fd, "\x55\xaa", 2, lseek(fd, 0, SEEK_END) - 2), 2);
    assert_int_equal(parity_read_piece(fd, &p, parity_pieces(&p) - 1, piece, NULL), -EBADMSG);
    io_close(&fd);
    parity_clear(&p);
    clear_group(&g);
    free(piece);
}

static void each_damaged_byte_of_head_and_tables_is_found(void **state)
{
    struct parity p;
    struct group g;
    struct buf b;

    (void)state;
    seed();
    make_group(&g, 4, 5000);
    g.p.sum = calloc(parity_pieces(&g.p), sizeof(*g.p.sum));
    buf_init(&b, 1 << 20);
    assert_int_equal(parity_encode(&g.p, &b, NULL), 0);
    for (size_t i = 0; i < b.len; i++) {
        b.data[i] ^= 1 << rnd(8);
        assert_int_equal(parity_decode(b.data, b.len, &p, NULL), -EBADMSG);
        assert_int_equal(parity_decode(b.data, i, &p, NULL), -EBADMSG); /* and each cut */
        buf_reset(&b);
        assert_int_equal(parity_encode(&g.p, &b, NULL), 0);
    }
    assert_int_equal(parity_decode(b.data, b.len, &p, NULL), 0);
    parity_clear(&p);
    buf_clear(&b);
    free(g.p.sum);
    clear_group(&g);
}

static void a_stream_runs_over_its_files_and_ends_in_zeros(void **state)
{
    static const struct parity_part part[] = {
        {.rank = 2, .bytes = 5}, {.rank = 3, .bytes = 1}, {.rank = 7, .bytes = 4}};
    static const char bytes[] = "abcdefghij";
    struct stream *s;
    char got[16];

    (void)state;
    assert_int_equal(stream_open(folder, ".new", part, COUNT(part), STREAM_MAKE, &s, NULL), 0);
    assert_int_equal(stream_write(s, 0, bytes, 4, NULL), 0);
    assert_int_equal(stream_write(s, 4, "efghij\0\0\0", 9, NULL), 0); /* what is behind the end is left out */
    stream_free(s);
    assert_int_equal(stream_open(folder, ".new", part, COUNT(part), STREAM_READ, &s, NULL), 0);
    for (size_t at = 0; at <= sizeof(bytes); at++) {
        memset(got, 'x', sizeof(got));
        assert_int_equal(stream_read(s, at, got, 4, NULL), 0);
        for (size_t i = 0; i < 4; i++)
            assert_int_equal(got[i], at + i < 10 ? bytes[at + i] : 0);
    }
    stream_free(s);
    assert_int_equal(truncate(in_folder("rank-00003.mck.new"), 0), 0);
    assert_int_equal(stream_open(folder, ".new", part, COUNT(part), STREAM_READ, &s, NULL), -EBADMSG);
    assert_int_equal(stream_open(folder, "", part, COUNT(part), STREAM_READ, &s, NULL), -ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_one_stream_can_be_made_again_from_the_others_and_their_parity),
        cmocka_unit_test(every_segment_of_a_stream_is_in_one_parity_and_none_in_its_own),
        cmocka_unit_test(parity_costs_one_share_of_the_longest_stream),
        cmocka_unit_test(groups_share_all_nodes_and_leave_none_alone),
        cmocka_unit_test_setup_teardown(a_file_reads_as_it_was_written, set_up, tear_down),
        cmocka_unit_test(each_damaged_byte_of_head_and_tables_is_found),
        cmocka_unit_test_setup_teardown(a_stream_runs_over_its_files_and_ends_in_zeros, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
