/* Where a command's files come from: what goes together, and what leads out of them. */
#include "tests/unit/test.h"

#include <stdio.h>
#include <string.h>

#include "api/spec.h"

#define ID "0123456789012345678901234567890123456789"
#define BUNDLE ID "012345678901234567890123"

static void a_source_is_refused_at_the_field_that_is_wrong(void **state)
{
    static const struct {
        const char *command, *pointer; /* NULL: it is good */
    } table[] = {
        {"bundle: '" BUNDLE "'", NULL},
        {"bundle: '" BUNDLE "', workdir: a/b", NULL},
        {"bundle: short", "/command/bundle"},
        {"bundle: '" BUNDLE "', workdir: /a", "/command/workdir"},
        {"bundle: '" BUNDLE "', workdir: a/../../b", "/command/workdir"},
        {"bundle: '" BUNDLE "', workdir: ..a/b..", NULL}, /* which are names */
        {"git: {url: 'https://h/r', commit: '" ID "'}", NULL},
        {"git: {url: 'https://h/r'}", "/command/git/commit"},
        {"git: {url: 'https://h/r', commit: main}", "/command/git/commit"},
        {"git: {url: 'ext::sh -c x', commit: '" ID "'}", "/command/git/url"},
        {"git: {url: '--upload-pack=x', commit: '" ID "'}", "/command/git/url"},
        {"git: {url: 'https://h/r', ref: '-x', commit: '" ID "'}", "/command/git/ref"},
        {"git: {url: 'https://h/r', commit: '" ID "'}, bundle: '" BUNDLE "'", "/command/git"},
        {"image: 'docker://debian:12'", NULL},
        {"image: /images/a.sif", NULL},
        {"image: a.sif", "/command/image"},
        {"image: 'docker://-v'", "/command/image"},
        {"image: 'docker://'", "/command/image"},
        {"image: 'docker://a b'", "/command/image"},
        {"image: '/a:b'", "/command/image"}, /* a colon is what parts a mount */
        {"ports: [tb, api_2, c, d, e, f, g, h]", NULL},
        {"ports: [a, b, c, d, e, f, g, h, i]", "/command/ports"},
        {"ports: [tb, tb]", "/command/ports/1"},
        {"ports: [TB]", "/command/ports/0"}, /* as a variable it is that */
        {"ports: [a-b]", "/command/ports/0"},
        {"ports: [a, 2b]", "/command/ports/1"},
        {"ports: [abcdefghijklmnopqrstuvwxyz0123456]", "/command/ports/0"},
        {"ports: [6006]", "/command/ports/0"},
        {"ports: tb", "/command/ports"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        struct faults f = {.n = 0};
        struct job_spec *spec = NULL;
        char text[1024];
        int n = snprintf(text, sizeof(text), "name: a\ncommand: {argv: [x], %s}\n", table[i].command);
        int r = spec_from_text(text, (size_t)n, &spec, &f);

        if ((r < 0) != (table[i].pointer != NULL) || (r < 0 && strcmp(f.v[0].pointer, table[i].pointer) != 0))
            fail_msg("%s: %s %s", table[i].command, f.n ? f.v[0].pointer : "", f.n ? f.v[0].message : "good");
        faults_clear(&f);
        if (r == 0)
            spec_free(spec);
    }
}

static void a_command_has_a_source_when_it_brings_its_files(void **state)
{
    static const struct {
        const char *json;
        bool has;
    } table[] = {{"{}", false}, {"{\"bundle\": \"x\"}", true}, {"{\"git\": {}}", true}, {"{\"git\": \"x\"}", false}};

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        json_auto_t *o = json_loads(table[i].json, 0, NULL);

        assert_int_equal(spec_has_source(o), table[i].has);
    }
    assert_false(spec_has_source(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_source_is_refused_at_the_field_that_is_wrong),
        cmocka_unit_test(a_command_has_a_source_when_it_brings_its_files),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
