#include "api/cli/slurm.h"

#include "tests/unit/test.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void times_are_those_of_sbatch(void **state)
{
    static const struct {
        const char *text;
        long s;
    } good[] = {{"90", 5400},      {"90:30", 5430},       {"4:00:00", 14400}, {"2-0", 172800}, {"1-12", 129600},
                {"1-0:30", 88200}, {"1-01:02:03", 90123}, {"UNLIMITED", 0},   {"INFINITE", 0}, {"0", 0}};
    static const char *const bad[] = {"",          "-",    "1-",  "-5", "4h",         "1:2:3:4",
                                      "1-2:3:4:5", "1--2", ":30", "1:", "99999999999"};
    long s;

    (void)state;
    for (size_t i = 0; i < COUNT(good); i++) {
        assert_int_equal(slurm_time(good[i].text, &s), 0);
        assert_int_equal(s, good[i].s);
    }
    for (size_t i = 0; i < COUNT(bad); i++)
        if (slurm_time(bad[i], &s) != -EINVAL)
            fail_msg("'%s' is taken as %ld s", bad[i], s);
}

static void memory_is_of_mib_unless_a_letter_says_otherwise(void **state)
{
    static const struct {
        const char *text;
        long mib;
    } good[] = {{"4096", 4096}, {"512M", 512}, {"32G", 32768}, {"2t", 2097152}, {"1K", 1}, {"2049K", 3}, {"0", 0}};
    static const char *const bad[] = {"", "G", "-1", "4GB", "4 G", "0x10", "1e3", "99999999999999999999"};
    long mib;

    (void)state;
    for (size_t i = 0; i < COUNT(good); i++) {
        assert_int_equal(slurm_memory(good[i].text, &mib), 0);
        assert_int_equal(mib, good[i].mib);
    }
    for (size_t i = 0; i < COUNT(bad); i++)
        assert_int_equal(slurm_memory(bad[i], &mib), -EINVAL);
}

static void lists_of_hosts_are_told_one_by_one(void **state)
{
    static const struct {
        const char *text, *names;
    } good[] = {{"n1", "[\"n1\"]"},
                {"n[1-3]", "[\"n1\",\"n2\",\"n3\"]"},
                {"gpu[08-10,12],x7", "[\"gpu08\",\"gpu09\",\"gpu10\",\"gpu12\",\"x7\"]"},
                {"", "[]"}};
    static const char *const bad[] = {"n[", "n[]x", "n[3-1]", "n[a]", "n[1-99999]", ",n1", "n[1-2]x", "n[1", "n[1-]"};

    (void)state;
    for (size_t i = 0; i < COUNT(good); i++) {
        json_auto_t *names = json_array(), *want = json_loads(good[i].names, 0, NULL);

        assert_int_equal(slurm_hosts(good[i].text, names), 0);
        assert_true(json_equal(names, want));
    }
    for (size_t i = 0; i < COUNT(bad); i++) {
        json_auto_t *names = json_array();

        if (slurm_hosts(bad[i], names) != -EINVAL)
            fail_msg("'%s' is taken", bad[i]);
    }
}

static void launchers_are_taken_from_before_the_program(void **state)
{
    static const struct {
        const char *line, *rest;
        int n;
    } rows[] = {
        {"python train.py --lr 1", "python train.py --lr 1", 0},
        {"srun python train.py", "python train.py", 1},
        {"  srun -n 8 --label -l --mpi=pmix --cpu-bind none python train.py", "  python train.py", 1},
        {"srun -n8 -- prog -n 4", "prog -n 4", 1},
        {"LR=3 exec srun prog", "LR=3 exec prog", 1},
        {"torchrun --standalone --nproc_per_node=4 train.py --nnodes 3", "python3 train.py --nnodes 3", 1},
        {"torchrun --nproc_per_node 4 -m pkg.train x", "python3 -m pkg.train x", 1},
        {"srun torchrun --rdzv_endpoint \"$A:1\" \\\n  train.py \\\n  --x 1", "python3 train.py \\\n  --x 1", 2},
        {"python -m torch.distributed.launch --nproc_per_node 2 train.py", "python3 train.py", 1},
        {"python3 -m pkg.tool --nproc_per_node 2", "python3 -m pkg.tool --nproc_per_node 2", 0},
        {"srunner x", "srunner x", 0},
        {"echo 'srun x'", "echo 'srun x'", 0},
        {"", "", 0},
        {"srun", "", 1},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct buf out;

        buf_init(&out, 4096);
        assert_int_equal(slurm_unwrap(rows[i].line, strlen(rows[i].line), &out), rows[i].n);
        assert_string_equal(buf_text(&out), rows[i].rest);
        buf_clear(&out);
    }
}

/* Each row: a script, what its spec is without the command, and the lines that have no counterpart. */
static void directives_become_fields_and_the_others_are_named(void **state)
{
    static const struct {
        const char *script, *spec, *lines;
    } rows[] = {
        {"#!/bin/sh\ntrue\n", "{'devices': {'min': 1, 'max': 1}}", "[]"},
        {"#!/bin/sh\n#SBATCH -J 'my job' -A nlp\n",
         "{'name': 'my-job', 'project': 'nlp', 'devices': {'min': 1, 'max': 1}}", "[]"},
        {"#!/bin/sh\n#SBATCH -N 2 --ntasks-per-node=4 # two nodes\n", "{'devices': {'min': 8, 'max': 8}}", "[]"},
        {"#!/bin/sh\n#SBATCH -n6\n", "{'devices': {'min': 6, 'max': 6}}", "[]"},
        {"#!/bin/sh\n#SBATCH --nodes=2-4 --gres=gpu:4\n", "{'devices': {'min': 8, 'max': 8}}", "[]"},
        {"#!/bin/sh\n#SBATCH --gpus a100:3\n", "{'devices': {'classes': ['a100'], 'min': 3, 'max': 3}}", "[2]"},
        {"#!/bin/sh\n#SBATCH -n 4 --gpus-per-task=2 -c 8 --mem-per-cpu=1G\n",
         "{'devices': {'min': 8, 'max': 8}, 'resources': {'cpus': 4.0, 'memory_mib': 4096}}", "[]"},
        {"#!/bin/sh\n#SBATCH -N 2 --gres=gpu:4 --mem=64G\n",
         "{'devices': {'min': 8, 'max': 8}, 'resources': {'memory_mib': 16384}}", "[]"},
        {"#!/bin/sh\n#SBATCH -t 1-0 --signal=B:USR1@300\n",
         "{'devices': {'min': 1, 'max': 1}, 'limits': {'time_s': 86400, 'warn_s': 300, 'warn_signal': 'SIGUSR1'}}",
         "[]"},
        {"#!/bin/sh\n#SBATCH --signal=12 -t UNLIMITED\n",
         "{'devices': {'min': 1, 'max': 1}, 'limits': {'warn_s': 60, 'warn_signal': 'SIGUSR2'}}", "[]"},
        {"#!/bin/sh\n#SBATCH --signal=TERM@90\n", "{'devices': {'min': 1, 'max': 1}}", "[2]"},
        {"#!/bin/sh\n#SBATCH --array=0-99:2%8\n",
         "{'devices': {'min': 1, 'max': 1}, 'array': {'index': '0-99:2', 'max_running': 8}}", "[]"},
        {"#!/bin/sh\n#SBATCH -x n[1-2] --no-requeue\n",
         "{'devices': {'exclude': ['n1', 'n2'], 'min': 1, 'max': 1}, 'retry': {'max': 0}}", "[]"},
        {"#!/bin/sh\n#SBATCH -p gpu\n\n# words\n#SBATCH --mail-type=END\n", "{'devices': {'min': 1, 'max': 1}}",
         "[2, 5]"},
        {"#!/bin/sh\ntrue\n#SBATCH -n 9\n", "{'devices': {'min': 1, 'max': 1}}", "[]"},
        {"#!/bin/sh\n#SBATCH --quux 7 -n 9\n", "{'devices': {'min': 1, 'max': 1}}", "[2]"},
        {"#!/bin/sh\n##SBATCH -n 9\n#SBATCHED\n", "{'devices': {'min': 1, 'max': 1}}", "[]"},
        {"#!/bin/sh\nsbatch next.sh\nmpirun x\n", "{'devices': {'min': 1, 'max': 1}}", "[2, 3]"},
        {"#!/bin/sh\ntar xf data.tar\nsrun x\nsrun y\n", "{'devices': {'min': 1, 'max': 1}}", "[2, 3]"},
        {"#!/bin/sh\necho $SLURM_JOB_NODELIST\n", "{'devices': {'min': 1, 'max': 1}}", "[2]"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        json_auto_t *spec = NULL, *notes = NULL, *lines = json_array(), *want_lines = NULL, *want = NULL;
        struct merr err = {""};
        char text[512];
        json_t *note;
        size_t n;

        (void)snprintf(text, sizeof(text), "%s", rows[i].spec);
        for (char *p = text; *p; p++)
            *p = *p == '\'' ? '"' : *p;
        want = json_loads(text, 0, NULL);
        want_lines = json_loads(rows[i].lines, 0, NULL);
        assert_true(want && want_lines);
        if (slurm_read(rows[i].script, &spec, &notes, &err) < 0)
            fail_msg("%s: %s", rows[i].script, err.text);
        assert_int_equal(json_object_del(spec, "command"), 0);
        json_array_foreach (notes, n, note)
            (void)json_array_append(lines, json_object_get(note, "line"));
        if (!json_equal(spec, want) || !json_equal(lines, want_lines))
            fail_msg("%s: %s, %s", rows[i].script, json_dumps(spec, 0), json_dumps(notes, 0));
    }
}

static void the_script_is_the_command(void **state)
{
    static const struct {
        const char *script, *argv;
    } rows[] = {
        {"#!/bin/bash -l\n#SBATCH -n 2\n\nmodule load x\nsrun prog $SLURM_PROCID \"${SLURM_NTASKS}\"\n",
         "[\"/bin/bash\",\"-l\",\"-c\",\"export SLURM_PROCID=\\\"$RANK\\\"\\nexport SLURM_NTASKS=\\\"$WORLD_SIZE\\\"\\n"
         "module load x\\nprog $SLURM_PROCID \\\"${SLURM_NTASKS}\\\"\\n\"]"},
        {"#!/usr/bin/env python3\n#SBATCH -n 2\nsrun = 1\nprint('''\n''')\n",
         "[\"/usr/bin/env\",\"python3\",\"-c\",\"srun = 1\\nprint('''\\n''')\\n\"]"},
        {"#!/bin/sh\n#SBATCH -J x\n#SBATCH -c 3\necho $SLURM_JOB_NAME $SLURM_CPUS_PER_TASK\n",
         "[\"/bin/sh\",\"-c\",\"export SLURM_JOB_NAME=\\\"x\\\"\\nexport SLURM_CPUS_PER_TASK=3\\n"
         "echo $SLURM_JOB_NAME $SLURM_CPUS_PER_TASK\\n\"]"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        json_auto_t *spec = NULL, *notes = NULL, *want = json_loads(rows[i].argv, 0, NULL);
        struct merr err = {""};
        json_t *argv;

        assert_non_null(want);
        assert_int_equal(slurm_read(rows[i].script, &spec, &notes, &err), 0);
        argv = json_object_get(json_object_get(spec, "command"), "argv");
        if (!json_equal(argv, want))
            fail_msg("%s", json_dumps(argv, 0));
    }
}

static void what_is_no_batch_script_is_refused_in_words(void **state)
{
    static const struct {
        const char *script, *words;
    } rows[] = {
        {"", "line 1: want the script's interpreter"},
        {"srun x\n", "line 1: want the script's interpreter"},
        {"#!\n", "line 1: want the script's interpreter"},
        {"#!/usr/bin/env\n", "line 1: want the script's interpreter"},
        {"#!/usr/bin/env -S\n", "line 1: want the script's interpreter"},
        {"#!/usr/bin/perl\n", "line 1: want the script's interpreter"},
        {"#!/bin/sh\n\n#SBATCH -t soon\n", "line 3: 'soon' is no value for --time"},
        {"#!/bin/sh\n#SBATCH --nodes\n", "line 2: --nodes wants a value"},
        {"#!/bin/sh\n#SBATCH --gres=gpu:a100:x\n", "line 2: 'gpu:a100:x' is no value for --gres"},
        {"#!/bin/sh\n#SBATCH -n 99999999\n", "line 2: '99999999' is no value for --ntasks"},
        {"#!/bin/sh\n#SBATCH -x n[\n", "line 2: 'n[' is no value for --exclude"},
        {"#!/bin/sh\necho \xff\n", "the script is not UTF-8"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        json_t *spec = NULL, *notes = NULL;
        struct merr err = {""};

        assert_int_equal(slurm_read(rows[i].script, &spec, &notes, &err), -EINVAL);
        if (!strstr(err.text, rows[i].words))
            fail_msg("%s: %s", rows[i].script, err.text);
        assert_true(!spec && !notes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_are_those_of_sbatch),
        cmocka_unit_test(memory_is_of_mib_unless_a_letter_says_otherwise),
        cmocka_unit_test(lists_of_hosts_are_told_one_by_one),
        cmocka_unit_test(launchers_are_taken_from_before_the_program),
        cmocka_unit_test(directives_become_fields_and_the_others_are_named),
        cmocka_unit_test(the_script_is_the_command),
        cmocka_unit_test(what_is_no_batch_script_is_refused_in_words),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
