/* Addresses of repositories: what git, or ssh, would read as something else than a place is refused. */
#include "tests/unit/test.h"

#include <string.h>

#include "api/git_source.h"

static void only_places_are_taken(void **state)
{
    static const char *const good[] = {"https://example.org/a/b.git",
                                       "https://example.org:8443/a",
                                       "ssh://git@example.org/a.git",
                                       "ssh://example.org:2222/~ann/a",
                                       "/srv/git/a.git",
                                       "file:///srv/git/a.git",
                                       "https://[2001:db8::1]/a"};
    static const char *const bad[] = {"",
                                      "-u./x",
                                      "--upload-pack=touch x",
                                      "ext::sh -c touch% x",
                                      "http://example.org/a",
                                      "git://example.org/a",
                                      "ftp://example.org/a",
                                      "git@example.org:a.git",
                                      "a/b",
                                      "file://host/a",
                                      "https://",
                                      "https://example.org",
                                      "https://example.org/",
                                      "ssh://-oProxyCommand=x/a",
                                      "ssh://-o@example.org/a",
                                      "ssh://a@-oX/a",
                                      "https://ann:secret@example.org/a",
                                      "https://token@example.org/a",
                                      "ssh://ann:secret@example.org/a",
                                      "https://example.org/a b",
                                      "/srv/a\nb",
                                      "https://example.org/\xc3\xa4"};
    struct merr err;

    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        if (git_source_check_url(good[i], &err) != 0)
            fail_msg("'%s': %s", good[i], err.text);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (git_source_check_url(bad[i], &err) == 0)
            fail_msg("'%s' is taken", bad[i]);
    assert_int_not_equal(git_source_check_url("https://ann:hunter2@example.org/a", &err), 0);
    assert_null(strstr(err.text, "hunter2"));
}

static void refs_are_names_and_commits_are_whole(void **state)
{
    static const char *const bad[] = {"", "-x", "--all", "a..b", "a@{1}", "a b", "a:b", "^a", "a~1", "a*"};
    struct merr err;

    (void)state;
    assert_int_equal(git_source_check_ref("feature/x-1.0+b", &err), 0);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (git_source_check_ref(bad[i], &err) == 0)
            fail_msg("'%s' is taken", bad[i]);
    assert_true(git_source_is_commit("0123456789abcdef0123456789abcdef01234567"));
    assert_false(git_source_is_commit("0123456789abcdef0123456789abcdef0123456"));
    assert_false(git_source_is_commit("0123456789ABCDEF0123456789abcdef01234567"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_places_are_taken),
        cmocka_unit_test(refs_are_names_and_commits_are_whole),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
