#include "scheduler/sequence/workload.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/buf.h"

#define K 1024

static const struct seq_knot wiki_cn[] = {{32, 0},        {K, .8788},      {4 * K, .9934},
                                          {8 * K, .9992}, {32 * K, .9999}, {78 * K, 1}};
static const struct seq_knot lmsys[] = {{16, 0},         {K, .8712},       {4 * K, .9935}, {8 * K, .9987},
                                        {32 * K, .9998}, {128 * K, .9999}, {1643 * K, 1}};
static const struct seq_knot chatqa2[] = {{64, 0},        {K, .2192},      {4 * K, .3148},
                                          {8 * K, .4043}, {32 * K, .9986}, {99 * K, 1}};
static const struct seq_knot lmsys_cf[] = {{16, 0},          {K, .90499},       {4 * K, .99539}, {8 * K, .99908},
                                           {32 * K, .99987}, {128 * K, .99996}, {303 * K, 1}};
static const struct seq_knot wiki_en[] = {{16, 0},         {39, .01},        {87, .1},    {146, .25},   {347, .5},
                                          {862, .75},      {2112, .9},       {3721, .95}, {10921, .99}, {37367, .999},
                                          {101537, .9999}, {230941, .99999}, {1823777, 1}};
static const struct seq_knot webdoc[] = {{1, 0},         {11, .0022},    {51, .0313},    {101, .0833},    {201, .1856},
                                         {501, .4675},   {1025, .7138},  {2049, .8703},  {4097, .9437},   {8193, .9742},
                                         {16385, .9871}, {32769, .9956}, {65537, .9970}, {131073, .9986}, {196609, 1}};
static const struct seq_knot llama3_mix[] = {{64, 0}, {4096, .9989}, {8 * K, .9989}, {100 * K, 1}};

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

const struct seq_workload seq_workloads[] = {
    {"wiki-cn", "Chinese Wikipedia: a long tail", wiki_cn, COUNT(wiki_cn)},
    {"lmsys", "LMSys-Chat-1M: a very long tail", lmsys, COUNT(lmsys)},
    {"chatqa2", "ChatQA2 long fine-tuning: two humps", chatqa2, COUNT(chatqa2)},
    {"lmsys-cf", "LMSys-Chat-1M in another tokenizer", lmsys_cf, COUNT(lmsys_cf)},
    {"wiki-en", "English Wikipedia", wiki_en, COUNT(wiki_en)},
    {"webdoc", "web documents", webdoc, COUNT(webdoc)},
    {"llama3-mix", "the long-context mix of Llama 3: one long in a thousand", llama3_mix, COUNT(llama3_mix)},
};
const size_t seq_workloads_n = COUNT(seq_workloads);

const struct seq_workload *seq_workload_find(const char *name, struct merr *err)
{
    struct buf known;

    for (size_t i = 0; i < seq_workloads_n; i++)
        if (strcmp(seq_workloads[i].name, name) == 0)
            return &seq_workloads[i];
    buf_init(&known, 512);
    for (size_t i = 0; i < seq_workloads_n; i++)
        (void)buf_printf(&known, "%s%s", i ? ", " : "", seq_workloads[i].name);
    (void)merr_set(err, -ENOENT, "no workload '%s'; there are %s", name, buf_text(&known));
    buf_clear(&known);
    return NULL;
}

uint64_t seq_random(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;

    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

double seq_random_unit(uint64_t *state)
{
    return (double)(seq_random(state) >> 11) * 0x1p-53;
}

int64_t seq_workload_length(const struct seq_workload *w, double u)
{
    size_t i = 0;
    double a, b, length;

    assert(u >= 0 && u < 1);
    while (u >= w->knots[i + 1].share)
        i++;
    a = (double)w->knots[i].tokens;
    b = (double)w->knots[i + 1].tokens;
    length = floor(a * exp((u - w->knots[i].share) / (w->knots[i + 1].share - w->knots[i].share) * log(b / a)));
    return (int64_t)fmin(fmax(length, a), b - 1);
}

size_t seq_workload_draw(const struct seq_workload *w, uint64_t seed, int64_t longest, int64_t *ret, size_t n)
{
    uint64_t state = seed;
    size_t cut = 0;

    for (size_t i = 0; i < n; i++) {
        ret[i] = seq_workload_length(w, seq_random_unit(&state));
        if (longest && ret[i] > longest) {
            ret[i] = longest;
            cut++;
        }
    }
    return cut;
}
