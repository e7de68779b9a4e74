/* A command line of any words, one a line: it is read, or refused with words and without a trace; what was read lies in
 * its range. */
#include "base/options.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define WORDS 256

struct kept {
    const char *dir;
    int port, round_s, level;
    uint64_t seed, limit;
    double ratio;
    bool watch;
};

#define AT(member) OPTION_AT(struct kept, member)

static const char *const levels[] = {"debug", "info", "warn", NULL};
static const struct option_row rows[] = {
    {"dir", 'd', "DIR", "", .kind = OPTION_TEXT, .at = AT(dir)},
    {"port", 'p', "N", "", OPTION_INT, 10, 65535, "7717", .zero = true, .at = AT(port)},
    {"round", 0, "S", "", OPTION_SECONDS, 1, 604800, "1m", .at = AT(round_s)},
    {"level", 0, "LEVEL", "", OPTION_WORD, .words = levels, .def = "info", .at = AT(level)},
    {"seed", 0, "N", "", OPTION_WHOLE, .def = "1", .at = AT(seed)},
    {"limit", 0, "SIZE", "", OPTION_BYTES, .def = "1k", .at = AT(limit)},
    {"ratio", 0, "R", "", OPTION_REAL_OVER, 1, 100, "1.25", .at = AT(ratio)},
    {"set", 's', "PATH", "", .kind = OPTION_LIST},
    {"watch", 'w', NULL, "", .at = AT(watch)},
    {"help", 'h', NULL, "", .kind = OPTION_HELP},
    {0},
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct options o = {"program", "FILE", .max = 3, .passes = size & 1, .about = "", .rows = rows};
    char *text = malloc(size + 1), *argv[WORDS], *end;
    struct kept k = {.port = -7}, before = k;
    struct options_given g = {.n_args = -7};
    struct merr err = {""};
    int argc = 0, r;

    assert(text);
    memcpy(text, data, size);
    text[size] = '\0';
    for (char *word = text; argc < WORDS && word < text + size; word = end + 1) {
        end = word + strcspn(word, "\n");
        *end = '\0';
        argv[argc++] = word;
    }
    r = options_read(&o, argc, argv, &k, &g, &err);
    if (r != 0) {
        assert(r == OPTION_HELP || (r < 0 && err.text[0]));
        assert(memcmp(&k, &before, sizeof(k)) == 0 && g.n_args == -7);
    } else {
        assert(k.port == 0 || (k.port >= 10 && k.port <= 65535));
        assert(k.round_s >= 1 && k.round_s <= 604800 && k.level >= 0 && k.level < 3);
        assert(k.limit > 0 && k.ratio > 1 && k.ratio <= 100);
        assert(g.n_args >= 0 && g.n_args <= 3 && g.n_list <= OPTIONS_LIST_MAX);
    }
    free(text);
    return 0;
}
