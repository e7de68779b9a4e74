/* Rules of .musterignore: what git does with the same rules. */
#include "tests/unit/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/cli/ignore.h"
#include "base/io.h"

static struct ignore all;

/* As a walk finds it: nothing below a folder that is left out is looked at. */
static bool hides(const char *path)
{
    char part[256];

    for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
        (void)snprintf(part, sizeof(part), "%.*s", (int)(slash - path), path);
        if (ignore_hides(&all, part, true))
            return true;
    }
    return ignore_hides(&all, path, false);
}

static void rules_of_folders_go_before_those_above(void **state)
{
    static const struct {
        const char *path;
        bool hidden;
    } row[] = {{"a.log", true},       {"keep.log", false},    {"sub/a.log", false},
               {"sub/b.tmp", true},   {"other/b.tmp", false}, {"build/x", true},
               {"sub/build/x", true}, {"top", true},          {"sub/top", false}};
    size_t n;

    (void)state;
    assert_int_equal(ignore_add(&all, "# notes\n*.log\n!keep.log\nbuild/\n/top\n", 0), 0);
    n = all.n;
    assert_int_equal(ignore_add(&all, "!*.log\n/b.tmp\n", strlen("sub/")), 0);
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++)
        if (strncmp(row[i].path, "sub/", 4) == 0 && hides(row[i].path) != row[i].hidden)
            fail_msg("'%s'", row[i].path);
    ignore_cut(&all, n);
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++)
        if (strncmp(row[i].path, "sub/", 4) != 0 && hides(row[i].path) != row[i].hidden)
            fail_msg("'%s'", row[i].path);
    ignore_cut(&all, 0);
}

/* Rules and paths of chance, against git's own answer. */
static void random_rules_hide_what_git_ignores(void **state)
{
    static const char *const parts[] = {"a",    "b",    "ab",  "*",   "a*",  "?",   "**",
                                        "[ab]", "[!a]", "*.c", "\\a", "b.c", "\\#a"};
    static const char *const names[] = {"a", "b", "ab", "b.c", "a.c", "#a", "c"};
    unsigned seed = (unsigned)getpid();
    char paths[40][64], line[256];
    FILE *git;

    (void)state;
    print_message("seed %u\n", seed);
    git = popen("git init -q . 2>&1", "r"); // NOLINT(cert-env33-c)
    if (!git || pclose(git) != 0)
        skip();
    for (int round = 0; round < 30; round++) {
        bool ignored[40] = {false};
        struct buf rules, input;
        FILE *f;

        buf_init(&rules, 8192);
        buf_init(&input, 8192);
        for (int i = 0; i < 6; i++) {
            (void)buf_addstr(&rules, rand_r(&seed) % 4 == 0 ? "!" : "");
            (void)buf_addstr(&rules, rand_r(&seed) % 3 == 0 ? "/" : "");
            for (int k = 0, n = 1 + rand_r(&seed) % 3; k < n; k++)
                (void)buf_printf(&rules, "%s%s", k ? "/" : "",
                                 parts[rand_r(&seed) % (sizeof(parts) / sizeof(parts[0]))]);
            (void)buf_addstr(&rules, rand_r(&seed) % 4 == 0 ? "/" : "");
            (void)buf_addstr(&rules, rand_r(&seed) % 4 == 0 ? "  \n" : "\n");
        }
        for (int i = 0; i < 40; i++) {
            paths[i][0] = '\0';
            for (int k = 0, n = 1 + rand_r(&seed) % 4; k < n; k++)
                (void)snprintf(paths[i] + strlen(paths[i]), 16, "%s%s", k ? "/" : "",
                               names[rand_r(&seed) % (sizeof(names) / sizeof(names[0]))]);
            (void)buf_printf(&input, "%s\n", paths[i]);
        }
        assert_int_equal(io_write_file(".gitignore", buf_text(&rules), rules.len, 0644, NULL), 0);
        assert_int_equal(io_write_file("paths", buf_text(&input), input.len, 0644, NULL), 0);
        f = popen("git check-ignore --no-index --stdin < paths", "r"); // NOLINT(cert-env33-c)
        assert_non_null(f);
        while (fgets(line, sizeof(line), f)) {
            line[strcspn(line, "\n")] = '\0';
            for (int i = 0; i < 40; i++)
                ignored[i] |= strcmp(paths[i], line) == 0;
        }
        (void)pclose(f);
        assert_int_equal(ignore_add(&all, buf_text(&rules), 0), 0);
        for (int i = 0; i < 40; i++)
            if (hides(paths[i]) != ignored[i])
                fail_msg("'%s' is %signored by git, with\n%s", paths[i], ignored[i] ? "" : "not ", buf_text(&rules));
        ignore_cut(&all, 0);
        buf_clear(&rules);
        buf_clear(&input);
    }
}

int main(void)
{
    static char folder[] = "/tmp/muster-ignore.XXXXXX";
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_of_folders_go_before_those_above),
        cmocka_unit_test(random_rules_hide_what_git_ignores),
    };
    int r;

    if (!mkdtemp(folder) || chdir(folder) < 0)
        return 1;
    r = cmocka_run_group_tests(tests, NULL, NULL);
    (void)io_remove_tree(folder, NULL);
    return r;
}
