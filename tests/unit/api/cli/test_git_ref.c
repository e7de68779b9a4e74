/* Which commit a branch or tag is, by what git lists of a repository. */
#include "tests/unit/test.h"

#include <errno.h>
#include <string.h>

#include "api/cli/git_ref.h"

#define A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define C "cccccccccccccccccccccccccccccccccccccccc"

static void a_name_is_a_tag_before_a_branch_and_a_tag_what_it_points_to(void **state)
{
    static const struct {
        const char *listed, *ref, *commit; /* NULL: none */
    } table[] = {
        {A "\tHEAD\n" B "\trefs/heads/main\n", "HEAD", A},
        {A "\tHEAD\n" B "\trefs/heads/main\n", "main", B},
        {A "\trefs/heads/v1\n" B "\trefs/tags/v1\n", "v1", B},
        {A "\trefs/tags/v1\n" B "\trefs/tags/v1^{}\n", "v1", B},
        {A "\trefs/heads/main\n", "refs/heads/main", A},
        {A "\trefs/heads/main", "main", A}, /* without its line's end */
        {A "\trefs/heads/maintenance\n" B "\trefs/heads/x/main\n", "main", NULL},
        {A "\trefs/heads/main\n", "mai", NULL},
        {A "\trefs/heads/main\n", "", NULL},
        {"", "HEAD", NULL},
        {"\n\n\n", "HEAD", NULL},
        {"HEAD\n" A "\tHEAD\n", "HEAD", A},
        {"short\tHEAD\n", "HEAD", NULL}, /* what is no commit */
        {A A A "\tHEAD\n", "HEAD", NULL},
        {"../../etc/passwd\tHEAD\n", "HEAD", NULL},
        {C "\trefs/tags/v1^{}\n", "v1", C},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        char commit[GIT_REF_ID] = "";
        int r = git_ref_find(table[i].listed, table[i].ref, commit);

        if (r != (table[i].commit ? 0 : -ENOENT) || (table[i].commit && strcmp(commit, table[i].commit) != 0))
            fail_msg("row %zu: %d, %s", i, r, commit);
    }
}

static void what_needs_no_look_is_not_looked_up(void **state)
{
    static const struct {
        const char *command, *commit;
    } table[] = {
        {"{}", NULL},
        {"{\"git\": {}}", NULL}, /* which its check refuses */
        {"{\"git\": {\"url\": \"https://h/r\", \"commit\": \"" B "\"}}", B},
        {"{\"git\": {\"url\": \"https://h/r\", \"ref\": \"" A "\"}}", A},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        json_auto_t *o = json_loads(table[i].command, 0, NULL);
        const json_t *commit;

        assert_int_equal(git_ref_add(o), 0);
        commit = json_object_get(json_object_get(o, "git"), "commit");
        if (!commit != !table[i].commit || (commit && strcmp(json_string_value(commit), table[i].commit) != 0))
            fail_msg("row %zu", i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_is_a_tag_before_a_branch_and_a_tag_what_it_points_to),
        cmocka_unit_test(what_needs_no_look_is_not_looked_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
