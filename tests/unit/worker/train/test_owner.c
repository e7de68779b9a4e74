/* Whose a folder of checkpoints is: who may go on in it, and who is told to begin from it instead. */
#include "tests/unit/folder.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "worker/engine/train/owner.h"

static int claim(const char *folder, const char *user, const char *job, struct merr *err)
{
    char dir[PATH_MAX];

    (void)snprintf(dir, sizeof(dir), "%s/jobs/%s", top, job);
    assert_int_equal(io_mkdirs(dir, 0755, NULL), 0);
    return owner_claim(folder, &(struct owner){.user = user, .job = job, .dir = dir}, err);
}

static void a_folder_is_its_makers_and_of_his_other_jobs(void **state)
{
    char folder[PATH_MAX];
    struct merr err;

    (void)state;
    (void)snprintf(folder, sizeof(folder), "%s/own/deep", top);
    assert_int_equal(claim(folder, "ann", "j1", &err), 0);
    assert_int_equal(claim(folder, "ann", "j1", &err), 0);
    assert_int_equal(claim(folder, "ann", "j2", &err), 0);
    assert_int_equal(claim(folder, "bob", "j3", &err), -EPERM);
    assert_non_null(strstr(err.text, "are those of 'ann', not of 'bob'"));
    assert_non_null(strstr(err.text, "init.from"));
    assert_int_equal(claim(folder, "", "j4", &err), 0); /* no server's run: Unix decides */
}

static void a_link_leads_to_nobody_elses_checkpoints(void **state)
{
    char theirs[PATH_MAX], link[PATH_MAX];
    struct merr err;

    (void)state;
    (void)snprintf(theirs, sizeof(theirs), "%s/jobs/j7/checkpoints", top);
    (void)snprintf(link, sizeof(link), "%s/jobs/j8", top);
    assert_int_equal(claim(theirs, "ann", "j7", &err), 0);
    assert_int_equal(io_mkdirs(link, 0755, NULL), 0);
    (void)snprintf(link, sizeof(link), "%s/jobs/j8/checkpoints", top);
    assert_int_equal(symlink(theirs, link), 0);
    assert_int_equal(claim(link, "bob", "j8", &err), -EPERM);
}

/* As an older version leaves them. */
static void a_folder_without_a_record_is_its_unix_owners_unless_it_is_in_another_jobs(void **state)
{
    static const struct {
        const char *name;
        int want;
    } rows[] = {
        {"shared/old", 0},
        {"jobs/j20/checkpoints", 0},
        {"jobs/j2/checkpoints", -EPERM},
        {"jobs/j201/x", -EPERM},
    };
    char folder[PATH_MAX];
    struct merr err;

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        (void)snprintf(folder, sizeof(folder), "%s/%s", top, rows[i].name);
        assert_int_equal(io_mkdirs(folder, 0755, NULL), 0);
        assert_int_equal(claim(folder, "bob", "j20", &err), rows[i].want);
    }
    if (geteuid() != 0)
        return; /* nobody else's folder can be made */
    (void)snprintf(folder, sizeof(folder), "%s/of-nobody", top);
    assert_int_equal(io_mkdirs(folder, 0777, NULL), 0);
    assert_int_equal(chown(folder, 65534, 65534), 0);
    assert_int_equal(claim(folder, "bob", "j20", &err), -EPERM);
}

static void a_record_that_says_nothing_is_nobodys(void **state)
{
    char folder[PATH_MAX], path[PATH_MAX + 8];
    struct merr err;

    (void)state;
    (void)snprintf(folder, sizeof(folder), "%s/spoilt", top);
    (void)snprintf(path, sizeof(path), "%s/.owner", folder);
    assert_int_equal(io_mkdirs(folder, 0755, NULL), 0);
    assert_int_equal(io_write_file(path, "{}", 2, 0644, NULL), 0);
    assert_int_equal(claim(folder, "bob", "j30", &err), -EPERM);
}

/* Sixteen at once: all of one user get it, whoever was first of two. */
static void many_ranks_and_two_users_ask_at_once_and_one_user_gets_it(void **state)
{
    char folder[PATH_MAX];
    int got[2] = {0, 0};
    pid_t pids[16];

    (void)state;
    (void)snprintf(folder, sizeof(folder), "%s/race", top);
    for (int i = 0; i < 16; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0)
            _exit(claim(folder, i % 2 ? "bob" : "ann", i % 2 ? "j41" : "j40", NULL) == 0 ? 0 : 1);
    }
    for (int i = 0; i < 16; i++) {
        int status;

        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        got[i % 2] += WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    assert_true((got[0] == 8 && got[1] == 0) || (got[0] == 0 && got[1] == 8));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_folder_is_its_makers_and_of_his_other_jobs),
        cmocka_unit_test(a_link_leads_to_nobody_elses_checkpoints),
        cmocka_unit_test(a_folder_without_a_record_is_its_unix_owners_unless_it_is_in_another_jobs),
        cmocka_unit_test(a_record_that_says_nothing_is_nobodys),
        cmocka_unit_test(many_ranks_and_two_users_ask_at_once_and_one_user_gets_it),
    };

    return cmocka_run_group_tests(tests, make_top, remove_top);
}
