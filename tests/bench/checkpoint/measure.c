/* measure - one timed run of the checkpoint code, for tests/bench/checkpoint/bench.py to interleave with others
 *
 *   checkpoint-measure direct DIR MIB         from aligned memory: hash, write with the I/O layer, sync
 *   checkpoint-measure staged DIR MIB CODEC   a writer's whole way: capture, encode, write, sync, commit
 *   checkpoint-measure zerocopy DIR MIB none  the same, from where the buffers lie
 *   checkpoint-measure load DIR               read and verify the newest into buffers, from a cold cache
 *   checkpoint-measure codec ESIZE MIB        exponent split on one core, by the CPU time it takes
 *
 * Prints one JSON object. Weights are N(0, 0.02), whose exponents spread as those of trained ones do. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/write/mio.h"
#include "compress/chunk.h"

#define TENSOR_MIB 16
#define BLOCK (4u << 20)
#define CHUNK (1u << 20)
#define MIB_MAX 4096
#define TENSORS_MAX (MIB_MAX / TENSOR_MIB)
#define SAMPLES 5
#define COPY_MIB 16

static void die(const char *what, const char *why)
{
    (void)fprintf(stderr, "checkpoint-measure: %s: %s\n", what, why);
    exit(1);
}

static void must(int r, const char *what, const struct merr *err)
{
    if (r < 0)
        die(what, err->text);
}

static double cpu_s(void)
{
    struct rusage u;

    (void)getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

/* Microseconds this thread has run: what others do on its core does not count. */
static int64_t run_us(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static double uniform(uint64_t *s)
{
    *s ^= *s << 13;
    *s ^= *s >> 7;
    *s ^= *s << 17;
    return ((double)(*s >> 11) + 0.5) / 9007199254740992.0;
}

static void *memory(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED)
        die("memory", strerror(errno));
    (void)madvise(p, bytes, MADV_HUGEPAGE);
    return p;
}

/* f32 or the upper halves of such; the first COPY_MIB are drawn, the rest are copies of them. */
static void *weights(size_t bytes, size_t esize)
{
    size_t drawn = bytes < (size_t)COPY_MIB << 20 ? bytes : (size_t)COPY_MIB << 20;
    uint64_t seed = 88172645463325252u;
    char *p = memory(bytes);

    for (size_t i = 0; i + esize <= drawn; i += esize) {
        float f = (float)(0.02 * sqrt(-2 * log(uniform(&seed))) * cos(6.283185307179586 * uniform(&seed)));

        memcpy(p + i, (char *)&f + sizeof(f) - esize, esize);
    }
    for (size_t at = drawn; at < bytes; at += drawn)
        memcpy(p + at, p, bytes - at < drawn ? bytes - at : drawn);
    return p;
}

static void print_run(size_t bytes, double seconds, double cpu, uint64_t stored)
{
    (void)printf("{\"bytes\": %zu, \"seconds\": %.6f, \"cpu_s\": %.6f, \"stored\": %llu}\n", bytes, seconds, cpu,
                 (unsigned long long)stored);
}

/* --- write ------------------------------------------------------------------------------------- */

static unsigned take_all(struct mio *m, int timeout_ms)
{
    struct pollfd p = {.fd = mio_fd(m), .events = POLLIN};
    unsigned n = 0;

    (void)poll(&p, 1, timeout_ms);
    for (struct mio_req *r; (r = mio_take(m)); n++)
        if (r->res)
            die("write", strerror(-r->res));
    return n;
}

static void direct(const char *dir, size_t bytes)
{
    static struct mio_req req[MIB_MAX / 4];
    struct mio_req sync = {.op = MIO_SYNC};
    struct merr err = {.text = ""};
    uint32_t sum = 0;
    size_t blocks = bytes / BLOCK, done = 0;
    char path[4096], *data = weights(bytes, 4);
    struct mio *m;
    int64_t start;
    double cpu;
    int fd;

    must(mio_open(NULL, data, bytes, &m, &err), "mio_open", &err);
    (void)snprintf(path, sizeof(path), "%s/direct.bin", dir);
    start = clock_mono_us();
    cpu = cpu_s();
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | mio_open_flags(m), 0644);
    if (fd < 0)
        die(path, strerror(errno));
    for (size_t i = 0; i < blocks; i++) {
        for (size_t k = 0; k < BLOCK; k += CHUNK) {
            sum ^= hash_crc32c(0, data + i * BLOCK + k, CHUNK);
            sum ^= (uint32_t)hash_xxh3(data + i * BLOCK + k, CHUNK);
        }
        req[i] = (struct mio_req){.op = MIO_WRITE, .fd = fd, .data = data + i * BLOCK, .len = BLOCK, .off = i * BLOCK};
        mio_submit(m, &req[i]);
        done += take_all(m, 0);
    }
    while (done < blocks)
        done += take_all(m, 1000);
    sync.fd = fd;
    mio_submit(m, &sync);
    while (done < blocks + 1)
        done += take_all(m, 1000);
    print_run(bytes, (double)(clock_mono_us() - start) * 1e-6, cpu_s() - cpu, bytes + (sum & 0)); /* keeps the sums */
    (void)close(fd);
    (void)unlink(path);
    mio_close(m);
}

static size_t make_buffers(struct mck_buffer *b, char name[][24], char *data, size_t bytes)
{
    size_t n = bytes / ((size_t)TENSOR_MIB << 20);

    for (size_t i = 0; i < n; i++) {
        uint64_t count = ((uint64_t)TENSOR_MIB << 20) / 4;

        (void)snprintf(name[i], 24, "layer.%zu.weight", i);
        b[i] = (struct mck_buffer){.name = name[i],
                                   .ndim = 1,
                                   .shape = {count},
                                   .len = {count},
                                   .data = data + i * ((size_t)TENSOR_MIB << 20)};
    }
    return n;
}

static struct mck_buffer buffer[TENSORS_MAX];
static char names[TENSORS_MAX][24];

static void staged(const char *dir, size_t bytes, const char *codec, enum mck_mode mode)
{
    struct mck_cfg cfg = {.dir = dir, .size = 1, .generation = 1, .codec = codec, .keep = 2, .mode = mode};
    size_t n = make_buffers(buffer, names, weights(bytes, 4), bytes);
    json_t *kv = json_pack("{s:i}", "step", 1);
    struct merr err = {.text = ""};
    struct mck_writer *w;
    struct mck_done done;
    int64_t start;
    double cpu;

    must(mck_writer_new(&cfg, buffer, n, &w, &err), "mck_writer_new", &err);
    start = clock_mono_us();
    cpu = cpu_s();
    must(mck_begin(w, 1, kv, &err), "mck_begin", &err);
    must(mck_drain(w, start + INT64_C(300000000), &err), "mck_drain", &err);
    start = clock_mono_us() - start;
    cpu = cpu_s() - cpu;
    if (mck_next_done(w, &done) != 1 || done.code)
        die("commit", done.err.text);
    print_run(bytes, (double)start * 1e-6, cpu, done.stored_bytes);
    mck_writer_free(w);
    json_decref(kv);
}

/* --- read -------------------------------------------------------------------------------------- */

static void forget(const char *dir, uint64_t step)
{
    char path[4096];
    int fd;

    (void)snprintf(path, sizeof(path), "%s/step-%08llu/rank-00000.mck", dir, (unsigned long long)step);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED))
        die(path, "cannot drop it from the page cache");
    (void)close(fd);
}

static void load(const char *dir)
{
    struct merr err = {.text = ""};
    uint64_t step;
    struct mck *c;
    json_t *doc;
    size_t n, bytes;
    int64_t start;
    double cpu;
    char *data;

    if (mck_latest(dir, &step, NULL, &err) != 1)
        die(dir, "holds no checkpoint");
    must(mck_open(dir, step, &c, &err), "mck_open", &err);
    doc = mck_inspect(c);
    bytes = json_array_size(json_object_get(doc, "tensors")) * ((size_t)TENSOR_MIB << 20);
    json_decref(doc);
    if (!bytes || bytes > (size_t)MIB_MAX << 20)
        die(dir, "was not written by `staged`");
    data = memory(bytes);
    memset(data, 1, bytes); /* pages there before anything is timed */
    n = make_buffers(buffer, names, data, bytes);
    forget(dir, step);
    start = clock_mono_us();
    cpu = cpu_s();
    must(mck_load(c, buffer, n, &err), "mck_load", &err);
    print_run(bytes, (double)(clock_mono_us() - start) * 1e-6, cpu_s() - cpu, bytes);
    mck_free(c);
}

/* --- codec ------------------------------------------------------------------------------------- */

static int ascending(const void *x, const void *y)
{
    const double *a = x, *b = y;

    return (*a > *b) - (*a < *b);
}

static void codec(size_t esize, size_t bytes)
{
    struct chunk_coder *c = chunk_coder_new();
    char *in = weights(bytes, esize), *out = memory(bytes), *again = memory(bytes);
    struct chunk_form *form = calloc(bytes / CHUNK, sizeof(*form));
    double encode[SAMPLES], decode[SAMPLES];
    uint64_t stored = 0;

    if (!c || !form)
        die("memory", "short");
    memset(out, 1, bytes);
    memset(again, 1, bytes);
    for (int s = 0; s < SAMPLES; s++) {
        int64_t start = run_us();

        stored = 0;
        for (size_t at = 0; at < bytes; at += CHUNK) {
            chunk_encode(c, CHUNK_PLANE, esize, 1, in + at, CHUNK, out + at, &form[at / CHUNK]);
            if (form[at / CHUNK].codec == CHUNK_RAW)
                memcpy(out + at, in + at, CHUNK);
            stored += form[at / CHUNK].len;
        }
        encode[s] = (double)bytes / (double)(run_us() - start) / 1e3;
        start = run_us();
        for (size_t at = 0; at < bytes; at += CHUNK)
            if (chunk_decode(c, &form[at / CHUNK], esize, out + at, again + at, CHUNK))
                die("decode", "what was encoded does not decode");
        decode[s] = (double)bytes / (double)(run_us() - start) / 1e3;
    }
    if (memcmp(in, again, bytes) != 0)
        die("decode", "other bytes than were encoded");
    qsort(encode, SAMPLES, sizeof(*encode), ascending);
    qsort(decode, SAMPLES, sizeof(*decode), ascending);
    (void)printf("{\"ratio\": %.6f, \"encode_gbps\": %.4f, \"decode_gbps\": %.4f}\n", (double)bytes / (double)stored,
                 encode[SAMPLES / 2], decode[SAMPLES / 2]);
    chunk_coder_free(c);
    free(form);
}

static size_t mib(const char *text)
{
    unsigned long n = strtoul(text, NULL, 10);

    if (n < TENSOR_MIB || n > MIB_MAX || n % TENSOR_MIB)
        die(text, "want MiB from 16 to 4096 in steps of 16");
    return (size_t)n << 20;
}

int main(int argc, char **argv)
{
    if (argc == 4 && !strcmp(argv[1], "direct"))
        direct(argv[2], mib(argv[3]));
    else if (argc == 5 && !strcmp(argv[1], "staged"))
        staged(argv[2], mib(argv[3]), argv[4], MCK_STAGED);
    else if (argc == 5 && !strcmp(argv[1], "zerocopy"))
        staged(argv[2], mib(argv[3]), argv[4], MCK_ZEROCOPY);
    else if (argc == 3 && !strcmp(argv[1], "load"))
        load(argv[2]);
    else if (argc == 4 && !strcmp(argv[1], "codec") && (!strcmp(argv[2], "2") || !strcmp(argv[2], "4")))
        codec(argv[2][0] == '2' ? 2 : 4, mib(argv[3]));
    else
        die("usage", "direct DIR MIB | staged|zerocopy DIR MIB CODEC | load DIR | codec 2|4 MIB");
    return 0;
}
