/* The turns of emulate.h, and as much of the CUDA runtime as Muster calls: memory with guard pages, streams that have
 * always run, and graphs of what was captured. FAKE_CUDA_FAIL=n makes the n-th call that may fail do so,
 * FAKE_CUDA=absent all that look for a driver. */
#include "tests/gpu/emulate.h"

#include "base/bf16.h"

#include <cstdio>
#include <map>
#include <mutex>
#include <vector>

#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#define STACK_BYTES (128 << 10)
#define WARP 32
#define BYTES_MAX_SHARED (227 << 10) /* of the largest GPU meant; FAKE_CUDA_SHARED=bytes: of another */

emulate_place emulate_here;

namespace
{

[[noreturn]] void fault(const char *what)
{
    (void)fprintf(stderr, "emulate: %s (block %u,%u thread %u)\n", what, emulate_here.block.x, emulate_here.block.y,
                  emulate_here.thread.x);
    abort();
}

/* --- turns -------------------------------------------------------------------------------------------------------- */

struct gate { /* n come, then all go on */
    int waiting, turn;
};

/* Where a thread waits: that of the library would look through the thread's cleanups at each of so many turns. */
typedef void *place[5];

struct fiber {
    place at;
    bool has_stack_in_use, ended; /* a fiber serves one thread after another */
    char *stack;
};

std::vector<fiber> fibers;
place scheduler;
ucontext_t first_context;
const std::function<void()> *running;
int current, count, live;
bool moved; /* did anybody get further in this round? */
gate block_gate, warp_gate[32];
int warp_live[32];
uint64_t words[32][2][WARP]; /* of this exchange, and of the last, which others may still read */
unsigned exchanges[1024];

/* What the lanes of a warp do together. */
enum deed { EXCHANGE, PRODUCT, LOAD, LOAD_TRANSPOSED };

struct lane_words { /* a lane's part in it, on its own stack */
    deed what;
    float *c;
    uint32_t a[4], b[2], row, *r;
};
lane_words *lanes[32][WARP];

struct copy_begun {
    uint32_t to, bytes;
    const void *from; /* NULL: zeros */
    bool in_group;
};
std::vector<copy_begun> copies[1024];
size_t shared_used, shared_most; /* by this launch, by any yet */
alignas(256) unsigned char shared_memory[BYTES_MAX_SHARED];
cudaError_t last_error;
size_t shared_allowed = 48 << 10;

/* A function that sets a place must not itself go to one. */
[[noreturn]] __attribute__((noinline)) void go_to(place p)
{
    __builtin_longjmp(p, 1);
}

void give_turn()
{
    if (__builtin_setjmp(fibers[(size_t)current].at) == 0)
        go_to(scheduler);
    emulate_here.thread = dim3((unsigned)current);
}

void pass(gate *g, const int *n)
{
    const int turn = g->turn;

    moved = true;
    if (++g->waiting == *n) {
        g->waiting = 0;
        g->turn++;
    }
    while (g->turn == turn)
        give_turn();
    moved = true;
}

[[noreturn]] void begin_fiber()
{
    for (;;) {
        (*running)();
        if (!copies[current].empty())
            fault("a thread ended while copies that it began are under way");
        fibers[(size_t)current].ended = moved = true;
        live--;
        warp_live[current / WARP]--;
        if (block_gate.waiting > 0 && block_gate.waiting == live) { /* who has ended is not waited for */
            block_gate.waiting = 0;
            block_gate.turn++;
        }
        if (warp_gate[current / WARP].waiting > 0)
            fault("a thread ended while others of its warp wait for it");
        give_turn(); /* until there is another thread of this number */
        moved = true;
    }
}

void take_turn(int i)
{
    fiber &f = fibers[(size_t)i];

    current = i;
    emulate_here.thread = dim3((unsigned)i);
    if (__builtin_setjmp(scheduler) != 0)
        return;
    if (f.has_stack_in_use)
        go_to(f.at);
    f.has_stack_in_use = moved = true;
    if (getcontext(&first_context) != 0)
        fault("getcontext");
    first_context.uc_stack.ss_sp = f.stack;
    first_context.uc_stack.ss_size = STACK_BYTES;
    first_context.uc_link = NULL;
    makecontext(&first_context, begin_fiber, 0);
    (void)setcontext(&first_context);
    fault("setcontext");
}

void run_block()
{
    const bool reverse = getenv("EMULATE_REVERSE") != NULL;

    live = count;
    block_gate = gate();
    for (int w = 0; w < count / WARP + 1 && w < 32; w++) {
        warp_gate[w] = gate();
        warp_live[w] = count - w * WARP < WARP ? count - w * WARP : WARP;
    }
    for (int i = 0; i < count; i++)
        exchanges[i] = 0, fibers[(size_t)i].ended = false;
    memset(shared_memory, 0xFF, shared_most); /* NaN: nothing may count on what was there */
    while (live > 0) {
        moved = false;
        for (int k = 0; k < count; k++) {
            const int i = reverse ? count - 1 - k : k;

            if (!fibers[(size_t)i].ended)
                take_turn(i);
        }
        if (!moved)
            fault("threads wait for ever: not all come to the same barrier");
    }
}

} // namespace

void emulate_wait_block()
{
    pass(&block_gate, &live);
}

/* --- what a warp does together ------------------------------------------------------------------------------------ */

namespace
{

float half_of(uint32_t pair, int upper)
{
    return bf16_to_float((uint16_t)(pair >> 16 * upper));
}

/* c += a · b of all lanes: fragments as tensor_core.h has them, put together as whole matrices. Sums are f32, made in
 * order; a GPU's differ in their last bits. */
void multiply(lane_words *const *lane)
{
    float a[16][16], b[16][8];

    for (int i = 0; i < WARP; i++) {
        const int g = i / 4, t = i % 4;

        for (int e = 0; e < 8; e++)
            a[g + e / 2 % 2 * 8][2 * t + e % 2 + e / 4 * 8] = half_of(lane[i]->a[e / 2], e % 2);
        for (int e = 0; e < 4; e++)
            b[2 * t + e % 2 + e / 2 * 8][g] = half_of(lane[i]->b[e / 2], e % 2);
    }
    for (int i = 0; i < WARP; i++)
        for (int e = 0; e < 4; e++) {
            float sum = lane[i]->c[e];

            for (int k = 0; k < 16; k++)
                sum += a[i / 4 + e / 2 * 8][k] * b[k][2 * (i % 4) + e % 2];
            lane[i]->c[e] = sum;
        }
}

void load(lane_words *const *lane)
{
    for (int m = 0; m < 4; m++) {
        uint16_t x[8][8];
        unsigned banks = 0;

        for (int r = 0; r < 8; r++) {
            const uint32_t at = lane[m * 8 + r]->row;

            if (at % 16 != 0 || at + 16 > shared_used)
                fault("a row of a matrix that begins off a boundary, or beyond shared memory");
            banks |= 1u << at / 16 % 8;
            memcpy(x[r], shared_memory + at, sizeof(x[r]));
        }
        if (banks != 0xFF)
            fault("rows of a matrix lie in the same banks");
        for (int i = 0; i < WARP; i++) {
            const int g = i / 4, t = i % 4;
            const bool turn = lane[i]->what == LOAD_TRANSPOSED;

            lane[i]->r[m] =
                turn ? x[2 * t][g] | (uint32_t)x[2 * t + 1][g] << 16 : x[g][2 * t] | (uint32_t)x[g][2 * t + 1] << 16;
        }
    }
}

/* The last lane to come does it for all. */
void together(lane_words *mine)
{
    const int warp = current / WARP;

    if (warp_live[warp] != WARP)
        fault("a warp that is not whole does something together");
    lanes[warp][current % WARP] = mine;
    if (warp_gate[warp].waiting == WARP - 1) {
        for (int i = 0; i < WARP; i++)
            if (lanes[warp][i]->what != mine->what)
                fault("lanes of a warp do different things together");
        if (mine->what == PRODUCT)
            multiply(lanes[warp]);
        else if (mine->what != EXCHANGE)
            load(lanes[warp]);
    }
    pass(&warp_gate[warp], &warp_live[warp]);
}

} // namespace

void emulate_product(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    lane_words mine = {PRODUCT, c, {a[0], a[1], a[2], a[3]}, {b0, b1}, 0, NULL};

    together(&mine);
}

void emulate_load_matrices(uint32_t row, bool transposed, uint32_t r[4])
{
    lane_words mine = {transposed ? LOAD_TRANSPOSED : LOAD, NULL, {0}, {0}, row, r};

    together(&mine);
}

void emulate_copy(uint32_t to, const void *from, uint32_t bytes, bool there)
{
    if (to % bytes != 0 || (there && (uintptr_t)from % bytes != 0) || to + bytes > shared_used)
        fault("a copy from or to off its boundary, or beyond shared memory");
    memset(shared_memory + to, 0xFF, bytes);
    copies[current].push_back({to, bytes, there ? from : NULL, false});
}

void emulate_copies_begun()
{
    for (copy_begun &c : copies[current])
        c.in_group = true;
}

void emulate_copies_wait()
{
    std::vector<copy_begun> left;

    for (const copy_begun &c : copies[current])
        if (!c.in_group)
            left.push_back(c);
        else if (c.from)
            memcpy(shared_memory + c.to, c.from, c.bytes);
        else
            memset(shared_memory + c.to, 0, c.bytes);
    copies[current].swap(left);
}

void emulate_exchange(uint64_t word, uint64_t all[32])
{
    uint64_t *const now = words[current / WARP][exchanges[current]++ % 2];
    lane_words mine = {EXCHANGE, NULL, {0}, {0}, 0, NULL};

    now[current % WARP] = word;
    together(&mine);
    memcpy(all, now, WARP * sizeof(*now));
}

unsigned char *emulate_shared()
{
    return shared_memory;
}

/* --- graphs ------------------------------------------------------------------------------------------------------- */

typedef std::vector<std::function<void()>> work_list;

/* --- memory ------------------------------------------------------------------------------------------------------- */

namespace
{

struct piece {
    void *map;
    size_t bytes;
    cudaMemoryType type;
};

std::map<char *, piece> pieces; /* by the address they were given out under, which is near the end of the pages */
std::recursive_mutex pieces_lock;
int working; /* pieces of work that run now, of all threads */

bool is_apart()
{
    const char *how = getenv("FAKE_CUDA");

    return how && strcmp(how, "apart") == 0;
}

void protect(const piece &p, bool open)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);

    if (p.type == cudaMemoryTypeDevice &&
        mprotect((char *)p.map + page, p.bytes - 2 * page, open ? PROT_READ | PROT_WRITE : PROT_NONE) != 0)
        fault("mprotect");
}

/* While one of these is there, memory of the GPU can be touched; where it is apart, only then. */
struct gpu_works {
    const bool apart = is_apart();

    gpu_works()
    {
        const std::lock_guard<std::recursive_mutex> hold(pieces_lock);

        if (apart && working++ == 0)
            for (const auto &p : pieces)
                protect(p.second, true);
    }

    ~gpu_works()
    {
        const std::lock_guard<std::recursive_mutex> hold(pieces_lock);

        if (apart && --working == 0)
            for (const auto &p : pieces)
                protect(p.second, false);
    }

    gpu_works(const gpu_works &) = delete;
    gpu_works &operator=(const gpu_works &) = delete;
};

} // namespace

namespace
{

/* What is under capture: by one thread, as cudaStreamCaptureModeThreadLocal has it. */
thread_local void *captured_stream;
thread_local work_list *captured;
thread_local bool capture_spoiled;

/* Work for a stream: run at once, or kept where the stream is captured. */
void queue(void *stream, const std::function<void()> &work)
{
    if (captured && stream == captured_stream) {
        captured->push_back(work);
    } else {
        const gpu_works now;

        work();
    }
}

/* What no capture takes: waiting, and memory. */
bool spoils_capture()
{
    capture_spoiled = capture_spoiled || captured;
    return captured;
}

void run_grid(dim3 grid, dim3 threads, size_t shared_bytes, const std::function<void()> &kernel)
{
    shared_used = shared_bytes;
    if (fibers.empty())
        memset(shared_memory, 0xFF, sizeof(shared_memory));
    if (shared_most < shared_bytes)
        shared_most = shared_bytes;
    count = (int)(threads.x * threads.y * threads.z);
    while (fibers.size() < (size_t)count) {
        fiber f = fiber();

        f.stack = (char *)malloc(STACK_BYTES);
        if (!f.stack)
            fault("no memory for stacks");
        fibers.push_back(f);
    }
    running = &kernel;
    emulate_here.block_size = threads;
    emulate_here.grid_size = grid;
    for (unsigned y = 0; y < grid.y; y++)
        for (unsigned x = 0; x < grid.x; x++) {
            emulate_here.block = dim3(x, y);
            run_block();
        }
}

} // namespace

/* For work of other libraries: fn gets a copy of what data holds now. */
extern "C" __attribute__((visibility("default"))) void emulate_queue(void *stream, void (*fn)(const void *),
                                                                     const void *data, size_t bytes)
{
    const std::vector<unsigned char> copy((const unsigned char *)data, (const unsigned char *)data + bytes);

    queue(stream, [=] { fn(copy.data()); });
}

void emulate_launch(dim3 grid, dim3 threads, size_t shared_bytes, void *stream, const std::function<void()> &kernel)
{
    const unsigned n = threads.x * threads.y * threads.z;

    if (n < 1 || n > 1024 || grid.x < 1 || grid.y < 1 || grid.y > 65535 || grid.z != 1 ||
        shared_bytes > shared_allowed) {
        last_error = cudaErrorInvalidConfiguration;
        return;
    }
    queue(stream, [=] { run_grid(grid, threads, shared_bytes, kernel); });
}

/* --- the runtime -------------------------------------------------------------------------------------------------- */

namespace
{

bool is_absent()
{
    const char *what = getenv("FAKE_CUDA");

    return what && strcmp(what, "absent") == 0;
}

/* Is it this call's turn to fail? Calls are counted from when the number was set. */
bool fails()
{
    const char *n = getenv("FAKE_CUDA_FAIL");
    static long calls, counted;
    const long turn = n ? strtol(n, NULL, 10) : 0;

    if (turn != counted) {
        counted = turn;
        calls = 0;
    }
    return turn > 0 && ++calls == turn;
}

cudaError_t may_fail(cudaError_t with)
{
    return is_absent() ? cudaErrorInsufficientDriver : fails() ? with : cudaSuccess;
}

cudaError_t allocate(void **ret, size_t bytes, cudaMemoryType type)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), inside = (bytes + page - 1) / page * page;
    const cudaError_t e = spoils_capture() ? cudaErrorStreamCaptureUnsupported : may_fail(cudaErrorMemoryAllocation);
    piece p;

    if (e != cudaSuccess)
        return e;
    p.bytes = inside + 2 * page;
    p.type = type;
    p.map = mmap(NULL, p.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p.map == MAP_FAILED || mprotect((char *)p.map + page, inside, PROT_READ | PROT_WRITE) != 0)
        return cudaErrorMemoryAllocation;
    /* the nearest multiple of 16 before the last page: some bytes may be read beyond the end, no more */
    char *at = (char *)p.map + page + (inside - (bytes + 15) / 16 * 16);

    memset((char *)p.map + page, 0xA5, inside);
    const std::lock_guard<std::recursive_mutex> hold(pieces_lock);
    pieces[at] = p;
    if (is_apart() && working == 0)
        protect(p, false);
    *ret = at;
    return cudaSuccess;
}

cudaError_t release(void *p)
{
    const std::lock_guard<std::recursive_mutex> hold(pieces_lock);
    const auto it = pieces.find((char *)p);

    if (!p)
        return cudaSuccess;
    if (it == pieces.end())
        fault("memory is freed that was not allocated");
    (void)munmap(it->second.map, it->second.bytes);
    pieces.erase(it);
    return cudaSuccess;
}

int handles;

} // namespace

/* Pieces of memory, streams and events that are still there: for tests of whoever should have let go of them. */
extern "C" __attribute__((visibility("default"))) int emulate_left(void)
{
    return (int)pieces.size() + handles;
}

/* Streams and events are nothing but handles that are counted. */
template <typename T> static cudaError_t make_handle(T *ret)
{
    const cudaError_t e = may_fail(cudaErrorMemoryAllocation);

    if (e == cudaSuccess) {
        *ret = (T)malloc(1);
        handles++;
    }
    return e;
}

template <typename T> static cudaError_t drop_handle(T h)
{
    handles--;
    free((void *)h);
    return cudaSuccess;
}

extern "C" {

cudaError_t CUDARTAPI cudaMalloc(void **p, size_t n)
{
    return allocate(p, n, cudaMemoryTypeDevice);
}
cudaError_t CUDARTAPI cudaMallocManaged(void **p, size_t n, unsigned)
{
    return allocate(p, n, cudaMemoryTypeManaged);
}
cudaError_t CUDARTAPI cudaHostAlloc(void **p, size_t n, unsigned)
{
    return allocate(p, n, cudaMemoryTypeHost);
}
cudaError_t CUDARTAPI cudaFree(void *p)
{
    return release(p);
}
cudaError_t CUDARTAPI cudaMallocAsync(void **p, size_t n, cudaStream_t)
{
    return allocate(p, n, cudaMemoryTypeDevice);
}
cudaError_t CUDARTAPI cudaFreeAsync(void *p, cudaStream_t)
{
    return release(p);
}
cudaError_t CUDARTAPI cudaFreeHost(void *p)
{
    return release(p);
}

cudaError_t CUDARTAPI cudaHostRegister(void *, size_t, unsigned)
{
    const cudaError_t e = may_fail(cudaErrorMemoryAllocation);

    handles += e == cudaSuccess;
    return e;
}

cudaError_t CUDARTAPI cudaHostUnregister(void *)
{
    handles--;
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaMemcpy2DAsync(void *to, size_t to_stride, const void *from, size_t from_stride, size_t n,
                                        size_t rows, cudaMemcpyKind, cudaStream_t stream)
{
    queue(stream, [=] {
        for (size_t r = 0; r < rows; r++)
            memcpy((char *)to + r * to_stride, (const char *)from + r * from_stride, n);
    });
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaMemcpyAsync(void *to, const void *from, size_t n, cudaMemcpyKind, cudaStream_t stream)
{
    const cudaError_t e = may_fail(cudaErrorLaunchFailure);

    if (e == cudaSuccess)
        queue(stream, [=] { memmove(to, from, n); });
    return e;
}

cudaError_t CUDARTAPI cudaMemcpy(void *to, const void *from, size_t n, cudaMemcpyKind k)
{
    return cudaMemcpyAsync(to, from, n, k, NULL);
}

cudaError_t CUDARTAPI cudaMemsetAsync(void *p, int value, size_t n, cudaStream_t stream)
{
    const cudaError_t e = may_fail(cudaErrorLaunchFailure);

    if (e == cudaSuccess)
        queue(stream, [=] { memset(p, value, n); });
    return e;
}

cudaError_t CUDARTAPI cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p)
{
    const std::lock_guard<std::recursive_mutex> hold(pieces_lock);
    const auto it = pieces.upper_bound((char *)p);

    memset(a, 0, sizeof(*a));
    a->type = cudaMemoryTypeUnregistered;
    if (it != pieces.begin()) {
        const piece &q = std::prev(it)->second;

        if ((const char *)p < (const char *)q.map + q.bytes)
            a->type = q.type;
    }
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaSetDevice(int device)
{
    return device == 0 ? may_fail(cudaErrorNoDevice) : cudaErrorInvalidDevice;
}

cudaError_t CUDARTAPI cudaStreamCreateWithFlags(cudaStream_t *s, unsigned)
{
    return make_handle(s);
}
cudaError_t CUDARTAPI cudaStreamCreateWithPriority(cudaStream_t *s, unsigned, int)
{
    return make_handle(s);
}

cudaError_t CUDARTAPI cudaDeviceGetStreamPriorityRange(int *last, int *first)
{
    *last = 0;
    *first = -5;
    return may_fail(cudaErrorNoDevice);
}

static int shared_most_allowed(void)
{
    const char *n = getenv("FAKE_CUDA_SHARED");

    return n ? (int)strtol(n, NULL, 10) : BYTES_MAX_SHARED;
}

/* FAKE_CUDA=apart: memory that the processor must not touch while the GPU computes; the GPU's own, never. */
cudaError_t CUDARTAPI cudaDeviceGetAttribute(int *value, cudaDeviceAttr what, int)
{
    *value = what == cudaDevAttrMaxSharedMemoryPerBlockOptin
                 ? shared_most_allowed()
                 : what == cudaDevAttrConcurrentManagedAccess && !is_apart();
    return may_fail(cudaErrorNoDevice);
}

/* FAKE_CUDA_FREE: bytes. */
cudaError_t CUDARTAPI cudaMemGetInfo(size_t *left, size_t *all)
{
    const char *n = getenv("FAKE_CUDA_FREE");

    *all = (size_t)80 << 30;
    *left = n ? strtoull(n, NULL, 10) : *all;
    return may_fail(cudaErrorLaunchFailure);
}

cudaError_t CUDARTAPI cudaStreamDestroy(cudaStream_t s)
{
    return drop_handle(s);
}

/* As one GPU for all processes, or with FAKE_CUDA=own as one for each. */
cudaError_t CUDARTAPI cudaGetDeviceProperties(struct cudaDeviceProp *about, int)
{
    const char *what = getenv("FAKE_CUDA");
    const pid_t id = what && strcmp(what, "own") == 0 ? getpid() : 0;

    memset(about, 0, sizeof(*about));
    memcpy(&about->uuid, &id, sizeof(id));
    about->pciDomainID = (int)id;
    about->sharedMemPerBlockOptin = (size_t)shared_most_allowed();
    about->concurrentManagedAccess = !is_apart();
    (void)snprintf(about->name, sizeof(about->name), "emulated");
    return may_fail(cudaErrorNoDevice);
}

cudaError_t CUDARTAPI cudaDriverGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return may_fail(cudaErrorNoDevice);
}

/* FAKE_CUDA_HUNG: nothing is ever done. */
cudaError_t CUDARTAPI cudaStreamQuery(cudaStream_t s)
{
    if (s == captured_stream && spoils_capture())
        return cudaErrorStreamCaptureUnsupported;
    return getenv("FAKE_CUDA_HUNG") ? cudaErrorNotReady : may_fail(cudaErrorLaunchFailure);
}

cudaError_t CUDARTAPI cudaStreamSynchronize(cudaStream_t s)
{
    return s == captured_stream && spoils_capture() ? cudaErrorStreamCaptureUnsupported
                                                    : may_fail(cudaErrorLaunchFailure);
}
cudaError_t CUDARTAPI cudaDeviceSynchronize(void)
{
    return may_fail(cudaErrorLaunchFailure);
}

cudaError_t CUDARTAPI cudaEventCreateWithFlags(cudaEvent_t *e, unsigned)
{
    return make_handle(e);
}
cudaError_t CUDARTAPI cudaEventDestroy(cudaEvent_t e)
{
    return drop_handle(e);
}

cudaError_t CUDARTAPI cudaEventRecord(cudaEvent_t, cudaStream_t)
{
    return may_fail(cudaErrorLaunchFailure);
}
cudaError_t CUDARTAPI cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned)
{
    return may_fail(cudaErrorLaunchFailure);
}

cudaError_t CUDARTAPI cudaEventQuery(cudaEvent_t)
{
    return getenv("FAKE_CUDA_HUNG") ? cudaErrorNotReady : may_fail(cudaErrorLaunchFailure);
}

cudaError_t CUDARTAPI cudaEventSynchronize(cudaEvent_t)
{
    return may_fail(cudaErrorLaunchFailure);
}

/* FAKE_CUDA_GRAPHS=none: as a driver that captures nothing. */
cudaError_t CUDARTAPI cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode mode)
{
    const char *none = getenv("FAKE_CUDA_GRAPHS");
    const cudaError_t e = none ? cudaErrorStreamCaptureUnsupported : may_fail(cudaErrorLaunchFailure);

    if (captured || mode != cudaStreamCaptureModeThreadLocal)
        fault("a capture within another, or one that other threads would spoil");
    if (e != cudaSuccess)
        return e;
    captured = new work_list();
    captured_stream = s;
    capture_spoiled = false;
    handles++;
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaGraphDestroy(cudaGraph_t graph)
{
    handles--;
    delete (work_list *)graph;
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *ret)
{
    work_list *const graph = captured;
    const cudaError_t e = capture_spoiled ? cudaErrorStreamCaptureInvalidated : may_fail(cudaErrorLaunchFailure);

    if (!graph || s != captured_stream)
        fault("the end of a capture that did not begin");
    captured = NULL;
    captured_stream = NULL;
    *ret = NULL;
    if (e == cudaSuccess)
        *ret = (cudaGraph_t)graph;
    else
        (void)cudaGraphDestroy((cudaGraph_t)graph);
    return e;
}

cudaError_t CUDARTAPI cudaGraphInstantiateWithFlags(cudaGraphExec_t *ret, cudaGraph_t graph, unsigned long long)
{
    const cudaError_t e = may_fail(cudaErrorMemoryAllocation);

    if (e != cudaSuccess)
        return e;
    *ret = (cudaGraphExec_t) new work_list(*(work_list *)graph);
    handles++;
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaGraphExecDestroy(cudaGraphExec_t graph)
{
    return cudaGraphDestroy((cudaGraph_t)graph);
}

cudaError_t CUDARTAPI cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t)
{
    const cudaError_t e = may_fail(cudaErrorLaunchFailure);
    const gpu_works now;

    for (const auto &work : *(work_list *)graph)
        if (e == cudaSuccess)
            work();
    return e;
}

cudaError_t CUDARTAPI cudaFuncSetAttribute(const void *, cudaFuncAttribute what, int value)
{
    if (what != cudaFuncAttributeMaxDynamicSharedMemorySize || value > shared_most_allowed())
        return cudaErrorInvalidValue;
    shared_allowed = value > 48 << 10 ? (size_t)value : 48 << 10;
    return may_fail(cudaErrorInvalidValue);
}

cudaError_t CUDARTAPI cudaGetLastError(void)
{
    const cudaError_t e = last_error;

    last_error = cudaSuccess;
    return e;
}

const char *CUDARTAPI cudaGetErrorString(cudaError_t e)
{
    return e == cudaErrorLaunchFailure ? "unspecified launch failure" : "an error";
}

} // extern "C"
