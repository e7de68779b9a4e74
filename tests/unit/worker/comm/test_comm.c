/* Every call of comm against a plain computation, over every transport. */
#include "tests/unit/short.h"
#include "tests/unit/test.h"

#include "tests/unit/worker/fake_device.h"
#include "tests/unit/worker/test_comm_team.inc"

#include "base/hash.h"
#include "worker/engine/comm/reduce.h"

/* Element i of member's vector, in the given type: sums of f32 depend on their order. */
static void fill(void *buf, size_t count, enum comm_type type, int member, unsigned salt)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t x = (uint32_t)(i * 2654435761u) ^ (uint32_t)(member * 40503 + 7) * (salt * 2246822519u + 1);

        x ^= x >> 15;
        x *= 2246822519u;
        x ^= x >> 13;
        if (type == COMM_U8)
            ((uint8_t *)buf)[i] = (uint8_t)x;
        else if (type == COMM_I64)
            ((int64_t *)buf)[i] = (int64_t)((uint64_t)x * 0x9E3779B97F4A7C15ull);
        else if (type == COMM_F32)
            ((float *)buf)[i] = (float)((int32_t)x) * 0x1p-20f;
        else
            ((double *)buf)[i] = (double)((int32_t)x) * 0x1.123p-20;
    }
}

/* The plain way: element by element, in member order. */
static void plain(void *dst, const void *src, size_t count, enum comm_type type, enum comm_op op)
{
    for (size_t i = 0; i < count; i++) {
#define PLAIN(T, U)                                                                                                    \
    do {                                                                                                               \
        T *d = (T *)dst + i;                                                                                           \
        T s = ((const T *)src)[i];                                                                                     \
        *d = op == COMM_SUM ? (T)((U)*d + (U)s) : *d > s ? *d : s;                                                     \
    } while (0)
        if (type == COMM_U8)
            PLAIN(uint8_t, unsigned);
        else if (type == COMM_I64)
            PLAIN(int64_t, uint64_t);
        else if (type == COMM_F32)
            PLAIN(float, float);
        else
            PLAIN(double, double);
    }
}

static void *expected(int n, size_t count, enum comm_type type, enum comm_op op, unsigned salt)
{
    size_t size = reduce_size(type);
    void *sum = malloc(count * size + 1), *one = malloc(count * size + 1);

    fill(sum, count, type, 0, salt);
    for (int m = 1; m < n; m++) {
        fill(one, count, type, m, salt);
        plain(sum, one, count, type, op);
    }
    free(one);
    return sum;
}

struct sizes {
    const size_t *bytes;
    size_t n;
};

static int reduces(struct team *t, struct comm_world *w, struct comm_group *g, size_t bytes, enum comm_type type,
                   void *a, void *b)
{
    size_t size = reduce_size(type), count = bytes / size, per = count / (size_t)comm_size(w);
    int n = comm_size(w), me = comm_rank(w);

    (void)t;
    for (enum comm_op op = COMM_SUM; op <= COMM_MAX; op++) {
        void *want = expected(n, count, type, op, (unsigned)op + 1);

        fill(a, count, type, me, (unsigned)op + 1);
        GOOD(comm_all_reduce(g, a, count, type, op, &err));
        NEED(memcmp(a, want, count * size) == 0);
        free(want);
    }
    if (bytes) {
        char *want = expected(n, per * (size_t)n, type, COMM_SUM, 9);
        uint64_t before;

        fill(a, per * (size_t)n, type, me, 9);
        before = hash_xxh3(a, per * (size_t)n * size);
        GOOD(comm_reduce_scatter(g, a, b, per, type, &err));
        NEED(memcmp(b, want + (size_t)me * per * size, per * size) == 0);
        NEED(before == hash_xxh3(a, per * (size_t)n * size));
        GOOD(comm_barrier(g, &err)); /* others read a in place no more */
        GOOD(comm_reduce_scatter(g, a, (char *)a + (size_t)me * per * size, per, type, &err));
        NEED(memcmp((char *)a + (size_t)me * per * size, want + (size_t)me * per * size, per * size) == 0);
        free(want);
    }
    return 0;
}

static int moves(struct comm_world *w, struct comm_group *g, size_t bytes, char *a, char *b)
{
    int n = comm_size(w), me = comm_rank(w);
    size_t piece = bytes / (size_t)n, len[TEAM_MAX], at[TEAM_MAX], back[TEAM_MAX], total = 0;
    const void *send[TEAM_MAX];
    void *recv[TEAM_MAX];
    char *want = malloc(bytes + 1);

    fill(a, piece, COMM_U8, me, 3);
    GOOD(comm_all_gather(g, a, piece, b, &err));
    for (int m = 0; m < n; m++) {
        fill(want, piece, COMM_U8, m, 3);
        NEED(memcmp(want, b + (size_t)m * piece, piece) == 0);
    }
    for (int m = 0; m < n; m++) { /* uneven, one of them empty */
        len[m] = m == n / 2 ? 0 : piece - piece * (size_t)m / 16;
        at[m] = total;
        total += len[m];
    }
    GOOD(comm_barrier(g, &err));
    memset(b, 0, bytes);
    fill(b + at[me], len[me], COMM_U8, me, 4);
    GOOD(comm_all_gather_v(g, b + at[me], len, at, b, &err));
    for (int m = 0; m < n; m++) {
        fill(want, len[m], COMM_U8, m, 4);
        NEED(memcmp(want, b + at[m], len[m]) == 0);
    }
    GOOD(comm_barrier(g, &err));
    fill(a, bytes, COMM_U8, me, 5);
    for (int m = 0; m < n; m++) { /* member i sends len[m] of its piece m to m, so m gets len[m] of each */
        send[m] = a + (size_t)m * piece;
        recv[m] = b + (size_t)m * piece;
        back[m] = len[me];
    }
    GOOD(comm_all_to_all_v(g, send, len, recv, back, &err));
    for (int m = 0; m < n; m++) {
        fill(want, bytes, COMM_U8, m, 5);
        NEED(memcmp(want + (size_t)me * piece, b + (size_t)m * piece, len[me]) == 0);
    }
    for (int root = 0; root<n; root += n> 2 ? n - 1 : 1) {
        fill(b, bytes, COMM_U8, me, 6);
        fill(want, bytes, COMM_U8, root, 6);
        GOOD(comm_broadcast(g, b, bytes, root, &err));
        NEED(memcmp(want, b, bytes) == 0);
    }
    free(want);
    return 0;
}

static int every_call(struct team *t, struct comm_world *w)
{
    const struct sizes *s = t->arg;
    struct comm_group *g = team_all(w, "dp");
    int r;

    NEED(g && comm_group_size(g) == t->n && comm_group_index(g) == comm_rank(w));
    for (size_t i = 0; i < s->n; i++) {
        for (int arena = 0; arena < 2; arena++) {
            char *a = arena ? comm_shared_alloc(w, s->bytes[i] + 64) : malloc(s->bytes[i] + 64);
            char *b = arena ? comm_shared_alloc(w, s->bytes[i] + 64) : malloc(s->bytes[i] + 64);

            if (arena && !a)
                continue;
            NEED(a && b && (!arena || (uintptr_t)a % 64 == 0));
            for (enum comm_type type = COMM_U8; type <= COMM_F64; type++) {
                if (s->bytes[i] > 4 << 20 && type != COMM_F32)
                    continue;
                r = reduces(t, w, g, s->bytes[i], type, a, b);
                if (r)
                    return r;
                GOOD(comm_barrier(g, &err));
            }
            r = moves(w, g, s->bytes[i], a, b);
            if (r)
                return r;
            GOOD(comm_barrier(g, &err));
            if (!arena) {
                free(a);
                free(b);
            }
        }
    }
    NEED(t->n == 1 || comm_bytes_sent(g) > 0);
    NEED(t->n > 1 || comm_bytes_sent(g) == 0);
    return 0;
}

static const size_t small_sizes[] = {0, 1, 7, 8, 4096, 65536, 65544};
static const size_t large_sizes[] = {1 << 20, (1 << 20) + 24};
static const size_t huge_sizes[] = {17000000};

static void every_call_is_right_over(enum team_way way, const int *teams)
{
    static const struct sizes small = {small_sizes, COUNT(small_sizes)}, large = {large_sizes, COUNT(large_sizes)};

    for (; *teams; teams++) {
        team_run(*teams, way, 1 << 20, every_call, &small);
        if (*teams <= 3 || !test_in_short())
            team_run(*teams, way, 6 << 20, every_call, &large);
    }
}

static void every_call_is_right_in_shared_memory(void **state)
{
    static const struct sizes some = {small_sizes + 2, 3};

    (void)state;
    every_call_is_right_over(TEAM_SHM, (const int[]){1, 2, 3, 4, 5, 8, 0});
    team_run(TEAM_MAX, TEAM_SHM, 0, every_call, &some);
}

static void every_call_is_right_over_ucx(void **state)
{
    (void)state;
    every_call_is_right_over(TEAM_UCX, (const int[]){1, 2, 3, 5, 0});
}

static void every_call_is_right_on_two_nodes(void **state)
{
    (void)state;
    every_call_is_right_over(TEAM_MIXED, (const int[]){2, 4, 5, 0});
}

static void seventeen_megabytes_are_right_on_all_ways(void **state)
{
    static const struct sizes huge = {huge_sizes, 1};

    (void)state;
    team_run(2, TEAM_SHM, 40 << 20, every_call, &huge);
    team_run(3, TEAM_SHM, 0, every_call, &huge);
    team_run(2, TEAM_UCX, 0, every_call, &huge);
    team_run(3, TEAM_MIXED, 0, every_call, &huge);
}

static void every_call_is_right_between_gpus(void **state)
{
    static const struct sizes large = {large_sizes + 1, 1};

    (void)state;
    for (int n = 2; n <= 3; n++) {
        struct team t;

        team_init(&t, n, n % 2 ? TEAM_MIXED : TEAM_SHM);
        t.device = &fake_device;
        t.device_needed = true;
        t.arg = &large;
        team_start(&t, every_call);
        team_wait(&t, 60000000);
        for (int i = 0; i < n; i++)
            assert_int_equal(t.exit_code[i], 0);
        team_clear(&t);
    }
}

/* Rows and columns of a 2 x 2 world, used in turn, and bytes as promised. */
static int grid(struct team *t, struct comm_world *w)
{
    int me = comm_rank(w), row[] = {me / 2 * 2, me / 2 * 2 + 1}, col[] = {me % 2, me % 2 + 2}, self[] = {me};
    struct comm_group *tp, *dp, *again, *one;
    float x[4];

    (void)t;
    GOOD(comm_group_new(w, "tp", row, 2, &tp, &err));
    GOOD(comm_group_new(w, "dp", col, 2, &dp, &err));
    GOOD(comm_group_new(w, "dp", col, 2, &again, &err));
    GOOD(comm_group_new(w, "self", self, 1, &one, &err));
    for (int k = 0; k < 50; k++) {
        for (int i = 0; i < 4; i++)
            x[i] = (float)(me + 1);
        GOOD(comm_all_reduce(tp, x, 4, COMM_F32, COMM_SUM, &err));
        NEED(x[3] == (float)(row[0] + row[1] + 2));
        GOOD(comm_all_reduce(me % 2 ? again : dp, x, 1, COMM_F32, COMM_SUM, &err));
        NEED(x[0] == 10);
        GOOD(comm_all_reduce(one, x, 4, COMM_F32, COMM_SUM, &err));
        NEED(x[0] == 10);
    }
    NEED(comm_bytes_sent(tp) == 50 * 16 && comm_bytes_sent(one) == 0);
    return 0;
}

static void groups_of_some_ranks_do_not_disturb_each_other(void **state)
{
    (void)state;
    team_run(4, TEAM_SHM, 0, grid, NULL);
    team_run(4, TEAM_MIXED, 0, grid, NULL);
}

static int odd_groups(struct team *t, struct comm_world *w)
{
    static const struct {
        int ranks[3], n;
    } bad[] = {{{0, 0}, 2}, {{0, 2}, 2}, {{-1, 0}, 2}, {{0}, 0}, {{0, 1, 0}, 3}};
    struct comm_group *g = NULL;
    struct comm_request *req;
    int other = 1 - comm_rank(w), both[] = {0, 1};
    char c = 0;

    (void)t;
    for (size_t i = 0; i < COUNT(bad); i++)
        NEED(comm_group_new(w, "x", bad[i].ranks, bad[i].n, &g, NULL) == -EINVAL && !g);
    NEED(comm_group_new(w, "x", &other, 1, &g, NULL) == -EINVAL);
    NEED(comm_group_new(w, "a name of sixteen", both, 2, &g, NULL) == -EINVAL);
    GOOD(comm_group_new(w, "x", both, 2, &g, &err));
    NEED(comm_isend(g, comm_group_index(g), 0, &c, 1, &req, NULL) == -EINVAL);
    NEED(comm_irecv(g, 2, 0, &c, 1, &req, NULL) == -EINVAL);
    NEED(comm_broadcast(g, &c, 1, 2, NULL) == -EINVAL);
    NEED(comm_all_reduce(g, &c, 1, (enum comm_type)9, COMM_SUM, NULL) == -EINVAL);
    GOOD(comm_barrier(g, &err));
    return 0;
}

/* Processor time of this process. */
static double spent_s(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Rank 1 comes two seconds late, as one that saves or computes for long. */
static int waits_long(struct team *t, struct comm_world *w)
{
    struct comm_group *g = team_all(w, "world");
    double before;

    (void)t;
    for (int i = 0; i < 100; i++) /* short waits, after which a rank looks on for longest */
        GOOD(comm_barrier(g, &err));
    if (comm_rank(w) == 1)
        (void)poll(NULL, 0, 2000);
    before = spent_s();
    GOOD(comm_barrier(g, &err));
    NEED(spent_s() - before < 0.1);
    return 0;
}

static void a_rank_that_waits_long_sleeps(void **state)
{
    (void)state;
    team_run(2, TEAM_SHM, 0, waits_long, NULL);
}

static void a_bad_argument_is_refused_and_the_world_goes_on(void **state)
{
    (void)state;
    team_run(2, TEAM_SHM, 0, odd_groups, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_is_right_in_shared_memory),
        cmocka_unit_test(every_call_is_right_over_ucx),
        cmocka_unit_test(every_call_is_right_on_two_nodes),
        cmocka_unit_test(every_call_is_right_between_gpus),
        cmocka_unit_test(seventeen_megabytes_are_right_on_all_ways),
        cmocka_unit_test(groups_of_some_ranks_do_not_disturb_each_other),
        cmocka_unit_test(a_rank_that_waits_long_sleeps),
        cmocka_unit_test(a_bad_argument_is_refused_and_the_world_goes_on),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
