#include "base/options.h"

#include "tests/unit/test.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/version.h"

struct kept {
    const char *dir, *user;
    int port, round_s, level;
    uint64_t seed, limit;
    double ratio, part;
    bool watch;
};

#define AT(member) OPTION_AT(struct kept, member)

static const char *const levels[] = {"debug", "info", "warn", NULL};
static const struct option_row rows[] = {
    {"dir", 'd', "DIR", "where", .kind = OPTION_TEXT, .env = "TEST_OPTIONS_DIR", .at = AT(dir)},
    {"port", 'p', "N", "which", OPTION_INT, 1, 65535, "7717", .zero = true, .at = AT(port)},
    {"round", 0, "S", "how often", OPTION_SECONDS, 1, 604800, "1m", .at = AT(round_s)},
    {"level", 0, "LEVEL", "how much", OPTION_WORD, .words = levels, .def = "info", .at = AT(level)},
    {"seed", 0, "N", "chance", OPTION_WHOLE, .def = "1", .at = AT(seed)},
    {"limit", 0, "SIZE", "at most", OPTION_BYTES, .at = AT(limit)},
    {"ratio", 0, "R", "how slow", OPTION_REAL, 1.01, 100, "1.25", .zero = true, .at = AT(ratio)},
    {"part", 0, "P", "of all", OPTION_REAL_OVER, 0, INFINITY, .at = AT(part)},
    {"offset", 0, "N", "from where", .kind = OPTION_INT, .lo = -5, .hi = 9e18},
    {"set", 's', "NAME=VALUE", "what", .kind = OPTION_LIST},
    {"watch", 'w', NULL, "look on", .at = AT(watch)},
    {0},
};
static const struct option_row common[] = {
    {"user", 0, "NAME", "who", .kind = OPTION_TEXT, .at = AT(user)},
    {"help", 'h', NULL, "this", .kind = OPTION_HELP},
    {"version", 0, NULL, "which one", .kind = OPTION_VERSION},
    {0},
};
static const struct options table = {"try it", "FILE", 0, 2, .about = "does things", .rows = rows, .common = common};

/* Read words separated by spaces; "''" is an empty one. */
static int read_line(const struct options *o, const char *line, struct kept *k, struct options_given *g, char *text,
                     struct merr *err)
{
    char *argv[128 + 1], *save = NULL;
    int argc = 0;

    (void)snprintf(text, 1024, "%s", line);
    for (char *word = strtok_r(text, " ", &save); word && argc < 128; word = strtok_r(NULL, " ", &save))
        argv[argc++] = strcmp(word, "''") == 0 ? word + 2 : word;
    argv[argc] = NULL;
    err->text[0] = '\0';
    return options_read(o, argc, argv, k, g, err);
}

static void what_is_not_given_has_its_default(void **state)
{
    struct kept k = {.port = -1};
    struct options_given g;
    struct merr err;
    char text[1024];

    (void)state;
    assert_int_equal(read_line(&table, "", &k, &g, text, &err), 0);
    assert_null(k.dir);
    assert_int_equal(k.port, 7717);
    assert_int_equal(k.round_s, 60);
    assert_int_equal(k.level, 1);
    assert_int_equal(k.seed, 1);
    assert_int_equal(k.limit, 0);
    assert_true(k.ratio == 1.25 && k.part == 0);
    assert_false(k.watch);
    assert_string_equal(g.text[1], "7717");
    assert_null(g.text[0]);
    assert_int_equal(g.n_args + (int)g.n_list, 0);
}

static void every_way_to_write_an_option_is_read(void **state)
{
    static const char *const lines[] = {
        "--dir x --port 80 --watch a b", "--dir=x --port=80 --watch a b", "-d x -p 80 -w a b", "-dx -p80 -w a b",
        "a --dir y -dx -w b -p80",       "--dir x -p 80 -w -- a b"};

    (void)state;
    for (size_t i = 0; i < COUNT(lines); i++) {
        struct kept k = {0};
        struct options_given g;
        struct merr err;
        char text[1024];

        assert_int_equal(read_line(&table, lines[i], &k, &g, text, &err), 0);
        assert_string_equal(k.dir, "x");
        assert_int_equal(k.port, 80);
        assert_true(k.watch);
        assert_int_equal(g.n_args, 2);
        assert_string_equal(g.arg[0], "a");
        assert_string_equal(g.arg[1], "b");
    }
}

static void edges_of_values_are_read_or_refused_in_words(void **state)
{
    static const struct {
        const char *line, *says; /* NULL: it is good */
    } edges[] = {
        {"--port 0", NULL},
        {"--port 1", NULL},
        {"--port 65535", NULL},
        {"--port 65536", "--port wants 0 or a number from 1 to 65535, not '65536'"},
        {"--port -1", "not '-1'"},
        {"--port +1", "not '+1'"},
        {"--port 1x", "not '1x'"},
        {"--port ''", "not ''"},
        {"--port 99999999999999999999", "--port wants"},
        {"--port", "--port wants N"},
        {"--round 1", NULL},
        {"--round 90s", NULL},
        {"--round 7d", NULL},
        {"--round 0", "--round wants a number from 1 to 604800, of seconds or such as 90s, 5m, 2h, 7d, not '0'"},
        {"--round 8d", "not '8d'"},
        {"--round 1w", "not '1w'"},
        {"--round 1mm", "not '1mm'"},
        {"--round m", "not 'm'"},
        {"--round 9999999999d", "--round wants"},
        {"--level warn", NULL},
        {"--level loud", "--level wants debug, info or warn, not 'loud'"},
        {"--level ''", "not ''"},
        {"--seed 18446744073709551615", NULL},
        {"--seed 18446744073709551616", "--seed wants a whole number"},
        {"--seed -1", "not '-1'"},
        {"--limit 500m", NULL},
        {"--limit 0", "--limit wants a size such as 500m or 8g, not '0'"},
        {"--limit 8gb", "not '8gb'"},
        {"--ratio 0", NULL},
        {"--ratio 1.01", NULL},
        {"--ratio 1", "--ratio wants 0 or a number from 1.01 to 100, not '1'"},
        {"--ratio nan", "not 'nan'"},
        {"--ratio 101", "not '101'"},
        {"--part 1e-30", NULL},
        {"--part 0", "--part wants a number above 0, not '0'"},
        {"--part inf", "not 'inf'"},
        {"--offset -5", NULL},
        {"--offset 4611686018427387904", NULL},
        {"--offset -6", "--offset wants a whole number from -5, not '-6'"},
        {"--user", "--user wants NAME"},
        {"--user=", NULL},
        {"--watch=yes", "'--watch=yes': --watch takes no value"},
        {"-wx", "--watch takes no value"},
        {"--wacth", "unknown option '--wacth'; did you mean '--watch'?"},
        {"--ver", "unknown option '--ver'; did you mean '--version'?"},
        {"--nothing=x", "unknown option '--nothing=x'; see `try it --help`"},
        {"--=", "unknown option '--='"},
        {"-x", "unknown option '-x'; see `try it --help`"},
        {"a b", NULL},
        {"a b c", "'c' is one argument too many; usage: try it FILE [OPTION...]"},
        {"-", NULL},
        {"-- --port", NULL},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(edges); i++) {
        struct kept k = {.port = 5}, before = k;
        struct options_given g = {.n_args = 77};
        struct merr err;
        char text[1024];
        int r = read_line(&table, edges[i].line, &k, &g, text, &err);

        if (r != (edges[i].says ? -EINVAL : 0) || (edges[i].says && !strstr(err.text, edges[i].says)))
            fail_msg("'%s': %d, %s", edges[i].line, r, err.text);
        if (r < 0) { /* a fault leaves no trace */
            assert_memory_equal(&k, &before, sizeof(k));
            assert_int_equal(g.n_args, 77);
        }
    }
}

static void sizes_have_units(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes; /* 0: refused */
    } sizes[] = {
        {"1", 1},
        {"500m", UINT64_C(500) << 20},
        {"8G", UINT64_C(8) << 30},
        {"3k", 3072},
        {"2t", UINT64_C(2) << 40},
        {"0", 0},
        {"", 0},
        {"m", 0},
        {"-1", 0},
        {" 1", 0},
        {"8gb", 0},
        {"8 g", 0},
        {"1.5g", 0},
        {"8x", 0},
        {"9223372036854775807", INT64_MAX},
        {"9223372036854775808", 0},
        {"8388608t", 0},
        {"99999999999999999999", 0},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(sizes); i++) {
        char name[] = "--limit", value[32];
        char *argv[] = {name, value};
        struct options_given g;
        struct kept k = {0};
        int r;

        (void)snprintf(value, sizeof(value), "%s", sizes[i].text);
        r = options_read(&table, 2, argv, &k, &g, NULL);
        if (r != (sizes[i].bytes ? 0 : -EINVAL) || k.limit != sizes[i].bytes)
            fail_msg("'%s': %d, %llu", sizes[i].text, r, (unsigned long long)k.limit);
        if (r == 0)
            assert_int_equal(options_whole(&rows[5], g.text[5]), sizes[i].bytes);
    }
}

static void an_option_that_may_be_given_again_keeps_all_in_order(void **state)
{
    struct options_given g;
    struct kept k = {0};
    struct merr err;
    char text[1024], many[1024] = "";

    (void)state;
    assert_int_equal(read_line(&table, "-s a=1 --set b=2 -sc=3", &k, &g, text, &err), 0);
    assert_int_equal(g.n_list, 3);
    assert_string_equal(g.list[0], "a=1");
    assert_string_equal(g.list[2], "c=3");
    for (int i = 0; i <= OPTIONS_LIST_MAX; i++) {
        assert_int_equal(read_line(&table, many, &k, &g, text, &err), 0);
        (void)strncat(many, "-sx ", sizeof(many) - strlen(many) - 1);
    }
    assert_int_equal(read_line(&table, many, &k, &g, text, &err), -EINVAL);
    assert_string_equal(err.text, "more than 64 --set; leave some out");
}

static void the_environment_stands_in_and_is_checked(void **state)
{
    static const struct option_row one[] = {{"n", 0, "N", "", OPTION_INT, 1, 9, "3", .env = "TEST_OPTIONS_N"}, {0}};
    static const struct options o = {"p", "", .about = "", .rows = one};
    struct options_given g;
    struct merr err;
    char text[1024];

    (void)state;
    assert_int_equal(setenv("TEST_OPTIONS_N", "7", 1), 0);
    assert_int_equal(read_line(&o, "", NULL, &g, text, &err), 0);
    assert_string_equal(g.text[0], "7");
    assert_int_equal(read_line(&o, "--n 8", NULL, &g, text, &err), 0);
    assert_string_equal(g.text[0], "8");
    assert_int_equal(setenv("TEST_OPTIONS_N", "", 1), 0);
    assert_int_equal(read_line(&o, "", NULL, &g, text, &err), 0);
    assert_string_equal(g.text[0], "3");
    assert_int_equal(setenv("TEST_OPTIONS_N", "x", 1), 0);
    assert_int_equal(read_line(&o, "", NULL, &g, text, &err), -EINVAL);
    assert_string_equal(err.text, "TEST_OPTIONS_N: --n wants a number from 1 to 9, not 'x'");
    assert_int_equal(unsetenv("TEST_OPTIONS_N"), 0);
}

static void what_is_needed_is_asked_for(void **state)
{
    static const struct option_row one[] = {{"dir", 0, "DIR", "where", .kind = OPTION_TEXT, .needed = true}, {0}};
    static const struct options o = {"p", "A B", 2, 2, .about = "", .rows = one};
    struct options_given g;
    struct merr err;
    char text[1024];

    (void)state;
    assert_int_equal(read_line(&o, "a b", NULL, &g, text, &err), -EINVAL);
    assert_string_equal(err.text, "--dir DIR is missing; see `p --help`");
    assert_int_equal(read_line(&o, "a --dir x", NULL, &g, text, &err), -EINVAL);
    assert_string_equal(err.text, "usage: p A B [OPTION...]");
    assert_int_equal(read_line(&o, "a --dir x b", NULL, &g, text, &err), 0);
}

static void help_is_given_before_later_faults(void **state)
{
    struct options_given g;
    struct kept k = {0};
    struct merr err;
    char text[1024];

    (void)state;
    assert_int_equal(read_line(&table, "-h --nonsense", &k, &g, text, &err), OPTION_HELP);
    assert_int_equal(read_line(&table, "a --version -x", &k, &g, text, &err), OPTION_VERSION);
    assert_int_equal(read_line(&table, "--nonsense -h", &k, &g, text, &err), -EINVAL);
}

static void another_programs_arguments_are_passed_on(void **state)
{
    static const struct options o = {"shim", "PROGRAM...", .passes = true, .about = "", .rows = rows};
    struct options_given g;
    struct kept k = {0};
    struct merr err;
    char text[1024];

    (void)state;
    assert_int_equal(read_line(&o, "--port 3 ls --port x", &k, &g, text, &err), 0);
    assert_string_equal(g.rest[0], "ls");
    assert_string_equal(g.rest[2], "x");
    assert_int_equal(k.port, 3);
    assert_int_equal(read_line(&o, "--port 3 -- --port x", &k, &g, text, &err), 0);
    assert_string_equal(g.rest[0], "--port");
    assert_int_equal(read_line(&o, "--port 3", &k, &g, text, &err), 0);
    assert_null(g.rest);
}

static void what_follows_two_dashes_is_another_programs(void **state)
{
    static const struct options o = {"try it", "FILE | -- PROGRAM...", 0, 1, .tail = true, .about = "", .rows = rows};
    struct options_given g;
    struct kept k = {0};
    struct merr err;
    char text[1024];

    (void)state;
    assert_int_equal(read_line(&o, "--port 3 -- ls --port x", &k, &g, text, &err), 0);
    assert_string_equal(g.rest[0], "ls");
    assert_string_equal(g.rest[1], "--port");
    assert_null(g.rest[3]);
    assert_int_equal(k.port, 3);
    assert_int_equal(g.n_args, 0);
    assert_int_equal(read_line(&o, "file --", &k, &g, text, &err), 0);
    assert_non_null(g.rest);
    assert_null(g.rest[0]);
    assert_int_equal(g.n_args, 1);
    assert_int_equal(read_line(&o, "file --port 3", &k, &g, text, &err), 0);
    assert_null(g.rest);
}

static void help_names_every_option_with_its_default(void **state)
{
    static const char *const said[] = {"usage: try it FILE [OPTION...]\n\ndoes things\n\n",
                                       "\n  -p, --port N               which (default 7717)\n",
                                       "\n      --round S              how often (default 1m)\n",
                                       "\n  -w, --watch                look on\n",
                                       "\n      --user NAME            who\n",
                                       "\n      --version              which one\n"};
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    (void)state;
    assert_non_null(out);
    options_print_help(&table, out);
    assert_int_equal(fclose(out), 0);
    for (size_t i = 0; i < COUNT(said); i++)
        if (!strstr(text, said[i]))
            fail_msg("'%s' is not in:\n%s", said[i], text);
    free(text);
}

static void long_help_is_broken_at_80_columns(void **state)
{
    char *text = NULL, words[400] = "";
    size_t size;
    FILE *out = open_memstream(&text, &size);

    (void)state;
    for (int i = 0; i < 60; i++)
        (void)strncat(words, "words ", sizeof(words) - strlen(words) - 1);
    assert_non_null(out);
    options_print_pair(out, "left", 10, words);
    assert_int_equal(fclose(out), 0);
    assert_true(strncmp(text, "  left       words words", 24) == 0);
    for (const char *line = text; *line; line += strcspn(line, "\n") + 1) {
        assert_true(strcspn(line, "\n") <= 80);
        assert_true(line == text || strncmp(line, "             words", 18) == 0);
    }
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_not_given_has_its_default),
        cmocka_unit_test(every_way_to_write_an_option_is_read),
        cmocka_unit_test(edges_of_values_are_read_or_refused_in_words),
        cmocka_unit_test(sizes_have_units),
        cmocka_unit_test(an_option_that_may_be_given_again_keeps_all_in_order),
        cmocka_unit_test(the_environment_stands_in_and_is_checked),
        cmocka_unit_test(what_is_needed_is_asked_for),
        cmocka_unit_test(help_is_given_before_later_faults),
        cmocka_unit_test(another_programs_arguments_are_passed_on),
        cmocka_unit_test(what_follows_two_dashes_is_another_programs),
        cmocka_unit_test(help_names_every_option_with_its_default),
        cmocka_unit_test(long_help_is_broken_at_80_columns),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
