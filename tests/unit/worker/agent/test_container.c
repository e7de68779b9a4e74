/* The command lines of podman and apptainer: what a program sees of the node, and what is not told to all on it. */
#include "tests/unit/folder.h"
#include "tests/unit/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "worker/agent/container.h"

static char *const env[] = {"SECRET=hush", "RANK=3", "PATH=/x", "HOME=/root", "EMPTY=", NULL};
static char *const argv[] = {"python3", "--rm", "a b", NULL};

static const struct container one = {.image = "docker://example.org/team/image:1",
                                     .cwd = "/jobs/j1/work",
                                     .folders = {"/jobs/j1", "/runs/j1-g1"},
                                     .gpus = "GPU-aa,GPU-bb",
                                     .env = env,
                                     .argv = argv};

/* The words, joined by blanks; and freed. */
static const char *joined(enum container_runtime runtime, const struct container *c)
{
    static char text[4096];
    char **w = container_words(runtime, c);

    assert_non_null(w);
    text[0] = '\0';
    for (char **p = w; *p; p++) {
        (void)snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s", p == w ? "" : " ", *p);
        free(*p);
    }
    free(w);
    return text;
}

static void podman_gets_folders_gpus_and_names_of_variables(void **state)
{
    struct container root = one, file = one;

    (void)state;
    assert_string_equal(
        joined(CONTAINER_PODMAN, &one),
        "podman run --rm --pull=missing --network=host --ipc=host --cgroups=disabled --log-driver=passthrough "
        "--cap-drop=all --security-opt=no-new-privileges --ulimit=host --userns=keep-id "
        "--volume=/jobs/j1:/jobs/j1 --volume=/runs/j1-g1:/runs/j1-g1 --workdir=/jobs/j1/work "
        "--device=nvidia.com/gpu=GPU-aa --device=nvidia.com/gpu=GPU-bb --env=SECRET --env=RANK --env=EMPTY "
        "--entrypoint= example.org/team/image:1 python3 --rm a b");
    root.root = true;
    root.gpus = "";
    assert_null(strstr(joined(CONTAINER_PODMAN, &root), "userns"));
    assert_null(strstr(joined(CONTAINER_PODMAN, &root), "--device"));
    file.image = "/shared/image.tar";
    assert_non_null(strstr(joined(CONTAINER_PODMAN, &file), " oci-archive:/shared/image.tar python3"));
}

static void apptainer_gets_the_same(void **state)
{
    struct container cpu = one;

    (void)state;
    assert_string_equal(joined(CONTAINER_APPTAINER, &one),
                        "apptainer exec --no-privs --nv --bind /jobs/j1 --bind /runs/j1-g1 --pwd /jobs/j1/work "
                        "docker://example.org/team/image:1 python3 --rm a b");
    cpu.gpus = NULL;
    assert_null(strstr(joined(CONTAINER_APPTAINER, &cpu), "--nv"));
}

static void the_runtime_is_the_one_that_is_there_and_takes_the_image(void **state)
{
    enum container_runtime is;
    char path[PATH_MAX + 16];
    struct merr err;

    (void)state;
    (void)snprintf(path, sizeof(path), "/nowhere::%s", top);
    assert_int_equal(container_find(path, "docker://a", &is, &err), -ENOENT);
    assert_non_null(strstr(err.text, "neither podman nor apptainer"));
    assert_int_equal(io_write_file(at("apptainer"), "", 0, 0755, NULL), 0);
    assert_int_equal(container_find(path, "docker://a", &is, &err), 0);
    assert_int_equal(is, CONTAINER_APPTAINER);
    assert_int_equal(io_write_file(at("podman"), "", 0, 0755, NULL), 0);
    assert_int_equal(container_find(path, "docker://a", &is, &err), 0);
    assert_int_equal(is, CONTAINER_PODMAN);
    assert_int_equal(container_find(path, "/shared/a.sif", &is, &err), 0);
    assert_int_equal(is, CONTAINER_APPTAINER);
    assert_int_equal(io_remove_tree(at("apptainer"), NULL), 0);
    assert_int_equal(container_find(path, "/shared/a.sif", &is, &err), -ENOENT);
    assert_non_null(strstr(err.text, "no apptainer"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(podman_gets_folders_gpus_and_names_of_variables),
        cmocka_unit_test(apptainer_gets_the_same),
        cmocka_unit_test(the_runtime_is_the_one_that_is_there_and_takes_the_image),
    };

    return cmocka_run_group_tests(tests, make_top, remove_top);
}
