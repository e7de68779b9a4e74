#include "tests/unit/test.h"

#include <errno.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/pattern.h"

static bool finds(const char *pattern, const char *line)
{
    struct pattern *p = NULL;
    bool found;

    assert_int_equal(pattern_new(pattern, &p, NULL), 0);
    found = pattern_finds(p, line, strlen(line), NULL);
    pattern_free(p);
    return found;
}

static void a_pattern_finds_the_lines_that_it_means(void **state)
{
    static const struct {
        const char *pattern, *line;
        bool found;
    } table[] = {
        {"loss", "step 3 loss 2.5", true},
        {"^loss", "step 3 loss 2.5", false},
        {"loss$", "the loss", true},
        {"^$", "", true},
        {"^$", " ", false},
        {"loss|error", "an error", true},
        {"no (end|start)", "no start", true},
        {"rank [24]$", "rank 4", true},
        {"rank [^24]$", "rank 4", false},
        {"rank [^24]$", "rank \xC3\xA9", true},
        {"[]x]", "]", true},
        {"[a-]", "-", true},
        {"[\\]]", "]", true},
        {"[[:digit:]]+ms", "took 17ms", true},
        {"[\\d.]+s$", "2.5s", true},
        {"^.$", "\xE2\x82\xAC", true}, /* one character of three bytes */
        {"^..$", "\xE2\x82\xAC", false},
        {"^\xC3\xA9+$", "\xC3\xA9\xC3\xA9", true},
        {"a{2}", "a a", false},
        {"^a{2,3}$", "aaa", true},
        {"^a{2,3}$", "aaaa", false},
        {"^a{3,}$", "aaaa", true},
        {"^(ab){0,2}$", "", true},
        {"^xa{0}y$", "xy", true},
        {"^xa{0}y$", "xay", false},
        {"\\d+\\.\\d+", "v1.25", true},
        {"^\\S+\\s\\w$", "a. b", true},
        {"\\D", "123", false},
        {"a\\|b", "a|b", true},
        {"\\t", "a\tb", true},
        {"cuda", "CUDA", false},
        {"(?i)cuda [e-r]+", "CUDA ERROR", true},
        {"(?i)^[A-Z]$", "q", true},
        {"^(a|b)*c", "ababc", true},
        {"()", "x", true},
        {"a||b", "x", true},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++)
        if (finds(table[i].pattern, table[i].line) != table[i].found)
            fail_msg("'%s' in '%s'", table[i].pattern, table[i].line);
}

static void what_is_no_pattern_is_refused_in_words(void **state)
{
    static const struct {
        const char *pattern, *why;
    } table[] = {
        {"", "1 to 512"},         {"(", "no )"},
        {"a)", "no ("},           {"[a", "no ]"},
        {"*a", "nothing before"}, {"a|+", "nothing"},
        {"a**", "in ( )"},        {"a{3,2}", "{2,5}"},
        {"a{x}", "{2,5}"},        {"a{999}", "{2,5}"},
        {"(a)\\1", "sign"},       {"\\bword", "sign"},
        {"a\\", "backslash"},     {"[z-a]", "rise"},
        {"[\xC3\xA9]", "ASCII"},  {"[[:foo:]]", "no such set"},
        {"(abc){100}", "256"},    {"((((){99}){99}){99}){99}", "too many"},
    };
    char deep[80];
    struct pattern *p = NULL;
    struct merr err;

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        assert_int_equal(pattern_new(table[i].pattern, &p, &err), -EINVAL);
        if (!strstr(err.text, table[i].why))
            fail_msg("'%s': %s", table[i].pattern, err.text);
    }
    memset(deep, '(', sizeof(deep));
    deep[sizeof(deep) - 1] = '\0';
    assert_int_equal(pattern_new(deep, &p, &err), -EINVAL);
    assert_null(p);
}

static unsigned next_random(unsigned *seed)
{
    *seed = *seed * 1103515245 + 12345;
    return *seed >> 16 & 0x7FFF;
}

/* A random pattern of "a", "b", groups and repetitions. */
static void random_pattern(unsigned *seed, int depth, char *to, size_t size)
{
    static const char *const repeats[] = {"", "", "*", "+", "?", "{2}", "{1,2}", "{2,}", "{0,3}"};
    size_t n = 0;

    for (unsigned items = 1 + next_random(seed) % 3; items > 0 && n + 24 < size; items--) {
        char inner[64] = "";

        switch (next_random(seed) % (depth > 0 ? 6 : 4)) {
        case 0:
            (void)snprintf(inner, sizeof(inner), "a");
            break;
        case 1:
            (void)snprintf(inner, sizeof(inner), "b");
            break;
        case 2:
            (void)snprintf(inner, sizeof(inner), ".");
            break;
        case 3:
            (void)snprintf(inner, sizeof(inner), "[^a]");
            break;
        default: {
            char one[24], two[24];

            random_pattern(seed, depth - 1, one, sizeof(one));
            random_pattern(seed, depth - 1, two, sizeof(two));
            (void)snprintf(inner, sizeof(inner), "(%s|%s)", one, two);
        }
        }
        n += (size_t)snprintf(to + n, size - n, "%s%s%s", items == 1 && next_random(seed) % 4 == 0 ? "|" : "", inner,
                              repeats[next_random(seed) % 9]);
        if (n >= size) {
            (void)snprintf(to, size, "a");
            return;
        }
    }
}

static void it_finds_what_the_c_library_finds(void **state)
{
    unsigned seed = 20, compared = 0;

    (void)state;
    for (int i = 0; i < 4000; i++) {
        char text[80], whole[84];
        struct pattern *p = NULL;
        regex_t re;

        random_pattern(&seed, 2, text, sizeof(text));
        (void)snprintf(whole, sizeof(whole), i % 2 ? "%s" : "^(%s)$", text);
        if (regcomp(&re, whole, REG_EXTENDED | REG_NOSUB) != 0)
            continue;
        if (pattern_new(whole, &p, NULL) < 0) { /* of too many places */
            regfree(&re);
            continue;
        }
        for (unsigned bits = 0; bits < 64; bits++) {
            char line[8];
            unsigned len = bits & 1 ? 5 : 3;

            for (unsigned k = 0; k < len; k++)
                line[k] = bits >> (k + 1) & 1 ? 'b' : k == 4 ? 'c' : 'a';
            line[len] = '\0';
            compared++;
            if (pattern_finds(p, line, len, NULL) != (regexec(&re, line, 0, NULL, 0) == 0))
                fail_msg("'%s' in '%s'", whole, line);
        }
        pattern_free(p);
        regfree(&re);
    }
    assert_true(compared > 100000);
}

/* Those that others take an age for. */
static void no_pattern_takes_more_than_its_places_for_each_byte(void **state)
{
    static const char *const evil[] = {
        "(a*)*b",           "(a|a)*b",         "(a|aa)+$", "(.*)(.*)(.*)(.*)(.*)[^a]x", "a?a?a?a?a?a?a?a?a?aaaaaaaaab",
        "(a{0,15}){0,16}b", "([^b]{0,9}a){8}b"};
    char line[4096];

    (void)state;
    memset(line, 'a', sizeof(line));
    for (size_t i = 0; i < COUNT(evil); i++) {
        struct pattern *p = NULL;
        uint64_t moves = 0;

        assert_int_equal(pattern_new(evil[i], &p, NULL), 0);
        (void)pattern_finds(p, line, sizeof(line), &moves);
        assert_true(moves <= (sizeof(line) + 1) * PATTERN_PLACES);
        pattern_free(p);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pattern_finds_the_lines_that_it_means),
        cmocka_unit_test(what_is_no_pattern_is_refused_in_words),
        cmocka_unit_test(it_finds_what_the_c_library_finds),
        cmocka_unit_test(no_pattern_takes_more_than_its_places_for_each_byte),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
