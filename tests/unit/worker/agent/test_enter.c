#include "tests/unit/test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "worker/agent/enter.h"

static char top[64];

static void make(const char *path, const char *text, size_t len)
{
    char name[256];

    (void)snprintf(name, sizeof(name), "%s/%s", top, path);
    *strrchr(name, '/') = '\0';
    assert_int_equal(io_mkdirs(name, 0700, NULL), 0);
    name[strlen(name)] = '/';
    assert_int_equal(io_publish_file(name, text, len, 0600, NULL), 0);
}

/* A process, its root and its namespace of users, each a name below top. */
static void process(const char *pid, const char *environment, size_t len, const char *root, const char *users)
{
    char path[256], target[128];

    (void)snprintf(path, sizeof(path), "%s/environ", pid);
    make(path, environment, len);
    (void)snprintf(target, sizeof(target), "%s/%s", top, root);
    assert_int_equal(io_mkdirs(target, 0700, NULL), 0);
    (void)snprintf(path, sizeof(path), "%s/%s/root", top, pid);
    assert_int_equal(symlink(target, path), 0);
    (void)snprintf(path, sizeof(path), "%s/%s/ns", top, pid);
    assert_int_equal(io_mkdirs(path, 0700, NULL), 0);
    (void)snprintf(target, sizeof(target), "%s/%s", top, users);
    assert_int_equal(io_mkdirs(target, 0700, NULL), 0);
    (void)snprintf(path, sizeof(path), "%s/%s/ns/user", top, pid);
    assert_int_equal(symlink(target, path), 0);
}

#define ENVIRONMENT(text) text, sizeof(text)

static int set_up(void **state)
{
    (void)state;
    (void)snprintf(top, sizeof(top), "/tmp/test_enter.XXXXXX");
    assert_non_null(mkdtemp(top));
    process("self", ENVIRONMENT("A=1"), "node", "users");
    process("100", ENVIRONMENT("MUSTER_JOB=j1\0RANK=0"), "node", "users"); /* podman itself */
    process("105", ENVIRONMENT("MUSTER_JOB=j1\0RANK=0\0PATH=/image/bin\0HOME=/image"), "image", "other");
    process("107", ENVIRONMENT("MUSTER_JOB=j1\0RANK=0\0PATH=/child"), "image", "other");
    process("103", ENVIRONMENT("MUSTER_JOB=j1\0RANK=1"), "image-1", "users");
    process("104", ENVIRONMENT("MUSTER_JOB=j10\0RANK=0"), "image-2", "users");
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return io_remove_tree(top, NULL);
}

static void the_first_process_of_the_rank_with_another_root_is_the_containers(void **state)
{
    struct enter e;
    struct merr err;

    (void)state;
    assert_int_equal(enter_find(top, "j1", "0", &e, NULL), 0);
    assert_int_equal(e.pid, 105);
    assert_true(e.users);
    assert_string_equal(e.path, "/image/bin");
    assert_string_equal(e.home, "/image");
    assert_int_equal(enter_find(top, "j1", "1", &e, NULL), 0);
    assert_int_equal(e.pid, 103);
    assert_false(e.users);
    assert_string_equal(e.path, "");
    assert_int_equal(enter_find(top, "j1", "2", &e, &err), -ESRCH);
    assert_non_null(strstr(err.text, "rank 2"));
}

/* Joined by blanks. */
static const char *joined(char **words)
{
    static char text[1024];

    assert_non_null(words);
    text[0] = '\0';
    for (char **w = words; *w; w++)
        (void)snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s", w == words ? "" : " ", *w);
    free(words);
    return text;
}

static void a_program_enters_its_namespaces_in_its_folder_with_the_images_path(void **state)
{
    static char *const argv[] = {"bash", "-l", NULL};
    static char *const env[] = {"PATH=/node/bin", "A=1", "HOME=/node", "HOMES=2", NULL};
    struct enter e = {.pid = 17, .path = "/image/bin", .home = "/image"};
    char room[2][ENTER_WORD_MAX];

    (void)state;
    assert_string_equal(joined(enter_words(&e, "/jobs/j1", argv, room)),
                        "nsenter --target=17 --mount --pid --root --wdns=/jobs/j1 -- bash -l");
    e.users = true; /* as without root */
    assert_string_equal(joined(enter_words(&e, "/jobs/j1", argv, room)),
                        "nsenter --target=17 --user --preserve-credentials --mount --pid --root --wdns=/jobs/j1 -- "
                        "bash -l");
    assert_string_equal(joined(enter_environment(&e, env, room)), "A=1 HOMES=2 PATH=/image/bin HOME=/image");
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_first_process_of_the_rank_with_another_root_is_the_containers, set_up,
                                        tear_down),
        cmocka_unit_test(a_program_enters_its_namespaces_in_its_folder_with_the_images_path),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
