#include "tests/unit/test.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/spec.h"
#include "base/buf.h"

#define MINIMAL "{\"train\":{\"model\":\"gpt2-124m\",\"data\":{\"path\":\"x\"}}}"
/* A good spec with a hole for one more top-level member and holes inside train. */
#define TRAIN(model, rest) "{\"train\":{\"model\":{" model "},\"data\":{\"path\":\"/x\"}" rest "}}"
#define DOCUMENTS(data, rest)                                                                                          \
    "{\"train\":{\"model\":{" SIZES "},\"data\":{\"path\":\"/x\",\"samples\":\"documents\"" data "}" rest "}}"
#define SIZES "\"layers\":4,\"hidden\":64,\"heads\":4,\"context\":32"

static const struct fault *find(const struct faults *f, const char *pointer)
{
    for (size_t i = 0; i < f->n; i++)
        if (strcmp(f->v[i].pointer, pointer) == 0)
            return &f->v[i];
    return NULL;
}

static struct job_spec *good(const char *text)
{
    struct job_spec *s = NULL;
    struct faults f = {.n = 0};
    int r = spec_from_text(text, strlen(text), &s, &f);

    for (size_t i = 0; i < f.n; i++)
        print_error("%s: %s\n", f.v[i].pointer, f.v[i].message);
    assert_int_equal(r, 0);
    assert_int_equal(f.n, 0);
    return s;
}

static void a_preset_and_a_path_are_enough(void **state)
{
    struct job_spec *s = good(MINIMAL);

    (void)state;
    assert_int_equal(s->kind, JOB_TRAIN);
    assert_string_equal(s->name, "job");
    assert_string_equal(s->project, "default");
    assert_int_equal(s->priority, 50);
    assert_int_equal(s->train.model.layers, 12);
    assert_int_equal(s->train.model.vocab, 50257);
    assert_int_equal(s->train.batch.length, 1024);
    assert_int_equal(s->train.batch.micro, SPEC_AUTO);
    assert_int_equal(s->checkpoint.every_steps, 100);
    assert_int_equal(s->parallel.virtual_workers, 8);
    assert_int_equal(s->devices.min, 1);
    assert_int_equal(s->devices.max, 1);
    assert_int_equal(s->train.optimizer.warmup, 50);
    assert_true(s->train.optimizer.beta2 == 0.95);
    assert_string_equal(s->sequence.policy, "pad");
    assert_null(s->checkpoint.dir);
    spec_free(s);
}

static void defaults_follow_what_is_given(void **state)
{
    static const struct {
        const char *text;
        int workers, ffn, vocab, devices, warmup;
    } rows[] = {
        {TRAIN(SIZES, ""), 8, 256, 256, 1, 50},
        {TRAIN(SIZES, ",\"batch\":{\"sequences\":12},\"steps\":30"), 6, 256, 256, 1, 3},
        {TRAIN(SIZES, ",\"batch\":{\"sequences\":7}"), 7, 256, 256, 1, 50},
        {TRAIN(SIZES, ",\"batch\":{\"sequences\":11}"), 1, 256, 256, 1, 50},
        {TRAIN(SIZES, ",\"batch\":{\"sequences\":8,\"micro\":4}"), 2, 256, 256, 1, 50},
        {TRAIN("\"preset\":\"gpt2-124m\",\"hidden\":384", ""), 8, 1536, 50257, 1, 50},
        {"{\"train\":{\"model\":\"gpt2-tiny\",\"data\":{\"path\":\"x\"}},"
         "\"parallel\":{\"tp\":2,\"pp\":2}}",
         8, 512, 256, 4, 50},
        {"{\"train\":{\"model\":\"gpt2-tiny\",\"data\":{\"path\":\"x\"}},"
         "\"parallel\":{\"tp\":\"auto\"}}",
         8, 512, 256, 1, 50},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct job_spec *s = good(rows[i].text);

        assert_int_equal(s->parallel.virtual_workers, rows[i].workers);
        assert_int_equal(s->train.model.ffn, rows[i].ffn);
        assert_int_equal(s->train.model.vocab, rows[i].vocab);
        assert_int_equal(s->devices.min, rows[i].devices);
        assert_int_equal(s->devices.max, rows[i].devices);
        assert_int_equal(spec_replica_devices(s), rows[i].devices);
        assert_int_equal(s->train.optimizer.warmup, rows[i].warmup);
        spec_free(s);
    }
}

static void each_fault_is_named_where_it_is(void **state)
{
    static const struct {
        const char *text, *pointer, *says;
    } rows[] = {
        {"[]", "", "object"},
        {"{}", "", "\"train\" or \"command\""},
        {"", "", "empty"},
        {"{\"train\":{\"model\":\"gpt2-tiny\",\"data\":{\"path\":\"x\"}},\"command\":\"true\"}", "", "not both"},
        {"{\"command\":\"true\",\"parallel\":{\"tp\":2}}", "/parallel", "\"train\""},
        {"{\"command\":{\"argv\":[]}}", "/command/argv", "program"},
        {"{\"command\":{}}", "/command/argv", "needed"},
        {"{\"command\":{\"argv\":[\"a\",1]}}", "/command/argv/1", "text"},
        {"{\"command\":{\"argv\":[\"a\"],\"env\":{\"1X\":\"a\"}}}", "/command/env", "1X"},
        {"{\"command\":{\"argv\":[\"a\"],\"env\":{\"X\":1}}}", "/command/env/X", "got 1"},
        {"{\"command\":\"true\",\"name\":\"-x\"}", "/name", "letters"},
        {"{\"command\":\"true\",\"name\":7}", "/name", "got 7"},
        {"{\"command\":\"true\",\"priority\":101}", "/priority", "0 to 100"},
        {"{\"command\":\"true\",\"priority\":1.5}", "/priority", "whole number"},
        {"{\"command\":\"true\",\"devices\":3}", "/devices", "object"},
        {"{\"command\":\"true\",\"devices\":{\"min\":3,\"max\":2}}", "/devices/max", "less than min"},
        {"{\"command\":\"true\",\"devices\":{\"classes\":[\"a\",\"\"]}}", "/devices/classes/1", "letters"},
        {"{\"command\":\"true\",\"devcies\":{}}", "/devcies", "did you mean 'devices'?"},
        {"{\"command\":\"true\",\"a/b~c\":{}}", "/a~1b~0c", "unknown field 'a/b~c'"},
        {TRAIN(SIZES, ",\"stpes\":3"), "/train/stpes", "unknown field 'stpes'; did you mean 'steps'?"},
        {TRAIN("\"layers\":4", ""), "/train/model/hidden", "needed"},
        {TRAIN("\"preset\":\"gpt2-124\"", ""), "/train/model/preset", "did you mean 'gpt2-124m'?"},
        {TRAIN("\"layers\":4,\"hidden\":65,\"heads\":4", ""), "/train/model/heads", "65"},
        {TRAIN(SIZES ",\"kv_heads\":2", ""), "/train/model/kv_heads", "want 4"},
        {TRAIN(SIZES ",\"vocab\":100", ""), "/train/model/vocab", "256"},
        {TRAIN(SIZES ",\"dropout\":1", ""), "/train/model/dropout", "1 (not itself)"},
        {TRAIN(SIZES, ",\"batch\":{\"length\":33}"), "/train/batch/length", "context of 32"},
        {TRAIN(SIZES, ",\"batch\":{\"sequences\":8,\"micro\":3}},\"parallel\":{\"virtual_workers\":2"),
         "/train/batch/micro", "divisor of 4"},
        {TRAIN(SIZES, "},\"parallel\":{\"virtual_workers\":3"), "/parallel/virtual_workers", "divisor"},
        {TRAIN(SIZES, "},\"parallel\":{\"tp\":3"), "/parallel/tp", "4 heads"},
        {TRAIN(SIZES, "},\"parallel\":{\"pp\":5"), "/parallel/pp", "4 layers"},
        {TRAIN(SIZES, "},\"parallel\":{\"tp\":2},\"devices\":{\"min\":1"), "/devices/min", "fewer than the 2"},
        {TRAIN(SIZES, ",\"steps\":5,\"optimizer\":{\"warmup\":6}"), "/train/optimizer/warmup", "5 steps"},
        {TRAIN(SIZES, ",\"optimizer\":{\"betas\":[0.9]}"), "/train/optimizer/betas", "two numbers"},
        {TRAIN(SIZES, ",\"optimizer\":{\"lr\":0}"), "/train/optimizer/lr", "0 (not itself)"},
        {TRAIN(SIZES, "},\"checkpoint\":{\"keep\":1"), "/checkpoint/keep", "2 to"},
        {TRAIN(SIZES, "},\"compress\":{\"checkpoint\":\"zst\""), "/compress/checkpoint", "did you mean 'zstd'?"},
        {TRAIN(SIZES ",\"qkv_bias\":true", ""), "/train/model/qkv_bias", "gpt2 has its own biases"},
        {TRAIN(SIZES ",\"qk_norm\":true", ""), "/train/model/qk_norm", "gpt2 has none"},
        {TRAIN(SIZES ",\"window\":9", ""), "/train/model/window", "gpt2 has none"},
        {TRAIN(SIZES ",\"family\":\"llama\",\"qk_norm\":true,\"fused\":true", ""), "/train/model/fused",
         "no known model"},
        {TRAIN(SIZES ",\"family\":\"llama\",\"qk_norm\":true,\"qkv_bias\":true", ""), "/train/model/qk_norm",
         "no known model"},
        {TRAIN(SIZES ",\"family\":\"llama\",\"head_dim\":5", ""), "/train/model/head_dim", "rotated"},
        {TRAIN(SIZES ",\"family\":\"llama\",\"fused\":true,\"kv_heads\":2", "},\"parallel\":{\"tp\":4"), "/parallel/tp",
         "in one tensor"},
        {TRAIN(SIZES ",\"rope_theta\":1e6", ""), "/train/model/rope_theta", "gpt2 learns its positions"},
        {TRAIN(SIZES, ",\"precision\":\"f16\""), "/train/precision", "bf16"},
        {TRAIN(SIZES, "},\"parallel\":{\"cp\":3"), "/parallel/cp", "multiple of 6"},
        {TRAIN(SIZES, "},\"parallel\":{\"cp\":2},\"devices\":{\"min\":1"), "/devices/min", "fewer than the 2"},
        {TRAIN(SIZES, "},\"parallel\":{\"cp\":8,\"cp_mode\":\"ulysses\""), "/parallel/cp_mode", "cp 8"},
        {TRAIN(SIZES, "},\"parallel\":{\"cp\":2,\"tp\":4,\"cp_mode\":\"ulysses\""), "/parallel/cp_mode",
         "the 1 kv_heads"},
        {TRAIN(SIZES, "},\"parallel\":{\"cp\":2,\"exact\":\"strict\""), "/parallel/exact", "cp above 1"},
        {TRAIN(SIZES, "},\"parallel\":{\"cp\":2},\"compress\":{\"dp\":\"g8\""), "/compress/dp", "cp above 1"},
        {TRAIN(SIZES, "},\"parallel\":{\"cp\":2},\"memory\":{\"policy\":\"mimose\",\"activation_budget_mib\":9"),
         "/memory/policy", "'sqrt'"},
        {DOCUMENTS("", "},\"parallel\":{\"cp\":2},\"sequence\":{\"policy\":\"chunk\""), "/sequence/policy",
         "cp above 1"},
        {DOCUMENTS("", "},\"parallel\":{\"cp\":2},\"sequence\":{\"policy\":\"dynamic\""), "/sequence/policy",
         "use 'sweep'"},
        {DOCUMENTS("", ",\"batch\":{\"length\":32,\"capacity\":15}},\"parallel\":{\"cp\":2"), "/train/batch/capacity",
         "at least 16"},
        {TRAIN(SIZES, "},\"parallel\":{\"pp\":2,\"chunks\":2"), "/parallel/chunks", "want the schedule"},
        {TRAIN(SIZES, "},\"parallel\":{\"pp\":2,\"schedule\":\"interleaved\""), "/parallel/chunks", "got 1"},
        {TRAIN(SIZES, "},\"parallel\":{\"schedule\":\"interleaved\",\"chunks\":2"), "/parallel/chunks", "pp of 2"},
        {TRAIN(SIZES, "},\"parallel\":{\"pp\":2,\"schedule\":\"interleaved\",\"chunks\":64"), "/parallel/chunks",
         "want at most"},
        {TRAIN(SIZES, "},\"parallel\":{\"pp\":2,\"layers\":[1,2,1]"), "/parallel/layers", "2 stages"},
        {TRAIN(SIZES, "},\"parallel\":{\"pp\":2,\"layers\":[3,2]"), "/parallel/layers", "5 layers"},
        {TRAIN(SIZES, "},\"parallel\":{\"pp\":2,\"layers\":[4,0]"), "/parallel/layers/1", "from 1"},
        {TRAIN(SIZES, "},\"parallel\":{\"layers\":4"), "/parallel/layers", "want an array"},
        {TRAIN(SIZES, "},\"parallel\":{\"pp\":2,\"schedule\":\"zb-h1\",\"recompute\":\"full\""), "/parallel/recompute",
         "zb-h1"},
        {TRAIN(SIZES, "},\"parallel\":{\"zero\":0},\"compress\":{\"dp\":\"g8\""), "/compress/dp", "zero 1"},
        {TRAIN(SIZES, "},\"parallel\":{\"exact\":\"strict\"},\"compress\":{\"tp\":\"auto\""), "/parallel/exact",
         "compress.tp 'auto'"},
        {TRAIN(SIZES, "},\"parallel\":{\"exact\":\"strict\",\"pp\":\"auto\"},\"compress\":{\"pp\":\"r8\""),
         "/parallel/exact", "needs a number"},
        {TRAIN(SIZES, "},\"sequence\":{\"policy\":\"pack\""), "/sequence/policy", "is for documents"},
        {DOCUMENTS("", "},\"parallel\":{\"pp\":2,\"schedule\":\"zb-h1\"},\"sequence\":{\"policy\":\"chunk\""),
         "/sequence/policy", "not built"},
        {DOCUMENTS("", ",\"batch\":{\"length\":32,\"capacity\":31}"), "/train/batch/capacity", "batch.length 32"},
        {DOCUMENTS("", ",\"batch\":{\"sequences\":3}},\"parallel\":{\"virtual_workers\":4"),
         "/parallel/virtual_workers", "3 documents"},
        {DOCUMENTS(",\"format\":\"tokens\"", ""), "/train/data/index", "is needed"},
        {DOCUMENTS(",\"index\":\"/i\"", ""), "/train/data/index", "format 'tokens'"},
        {TRAIN(SIZES, "},\"memory\":{\"policy\":\"mimose\""), "/memory/activation_budget_mib", "want one"},
        {TRAIN(SIZES, "},\"parallel\":{\"recompute_layers\":[1]"), "/parallel/recompute_layers",
         "'selective' or 'full'"},
        {TRAIN(SIZES, "},\"parallel\":{\"pp\":2,\"recompute\":\"full\",\"recompute_layers\":[1]"),
         "/parallel/recompute_layers", "makes 2 stages"},
        {TRAIN(SIZES, "},\"parallel\":{\"pp\":\"auto\",\"recompute\":\"full\",\"recompute_layers\":[1,1]"),
         "/parallel/recompute_layers", "both must be given"},
        {TRAIN(SIZES, "},\"parallel\":{\"recompute\":\"full\"},\"memory\":{\"policy\":\"sqrt\""), "/memory/policy",
         "by itself"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct job_spec *s = NULL;
        struct faults f = {.n = 0};
        const struct fault *one;

        assert_int_equal(spec_from_text(rows[i].text, strlen(rows[i].text), &s, &f), -EINVAL);
        assert_null(s);
        one = find(&f, rows[i].pointer);
        if (!one || !strstr(one->message, rows[i].says)) {
            print_error("%s\n", rows[i].text);
            for (size_t j = 0; j < f.n; j++)
                print_error("  %s: %s\n", f.v[j].pointer, f.v[j].message);
            fail();
        }
        faults_clear(&f);
    }
}

static void all_faults_come_at_once(void **state)
{
    const char *text = "{\"nme\":\"x\",\"priority\":-1,\"train\":{\"model\":{\"layers\":2,\"hidden\":64,\"heads\":4},"
                       "\"data\":{},\"stps\":1},\"parallel\":{\"tp\":3,\"pp\":4},\"checkpoint\":{\"keep\":0}}";
    static const char *const want[] = {"/nme",         "/priority",    "/train/data/path", "/train/stps",
                                       "/parallel/tp", "/parallel/pp", "/checkpoint/keep"};
    struct job_spec *s = NULL;
    struct faults f = {.n = 0};
    json_t *json;

    (void)state;
    assert_int_equal(spec_from_text(text, strlen(text), &s, &f), -EINVAL);
    for (size_t i = 0; i < COUNT(want); i++)
        assert_non_null(find(&f, want[i]));
    json = faults_json(&f);
    assert_int_equal(json_array_size(json), f.n);
    json_decref(json);
    faults_clear(&f);
}

static void more_faults_than_the_table_holds_are_counted(void **state)
{
    json_t *doc = json_object();
    struct job_spec *s = NULL;
    struct faults f = {.n = 0};
    char key[16];

    (void)state;
    for (int i = 0; i < 100; i++) {
        (void)snprintf(key, sizeof(key), "zzzzzz%d", i);
        json_object_set_new(doc, key, json_null());
    }
    assert_int_equal(spec_from_json(doc, &s, &f), -EINVAL);
    assert_int_equal(f.n, SPEC_FAULTS_MAX);
    assert_true(f.more >= 37); /* 100 names and the missing kind */
    faults_clear(&f);
    assert_int_equal(f.n + f.more, 0);
    json_decref(doc);
}

static void commands_are_read_in_both_forms(void **state)
{
    struct job_spec *s = good("command: echo $RANK && true\ndevices: {min: 2}\n");

    (void)state;
    assert_int_equal(s->kind, JOB_COMMAND);
    assert_string_equal(s->command.argv[0], "/bin/sh");
    assert_string_equal(s->command.argv[2], "echo $RANK && true");
    assert_null(s->command.argv[3]);
    assert_int_equal(s->command.grace_s, 10);
    assert_int_equal(s->devices.max, 2);
    assert_int_equal(spec_replica_devices(s), 1);
    spec_free(s);
    s = good("command: {argv: [a, 'b c'], env: {A: x=y, B: ''}, workdir: /tmp, grace_s: 0}");
    assert_string_equal(s->command.env[0], "A=x=y");
    assert_string_equal(s->command.env[1], "B=");
    assert_null(s->command.env[2]);
    assert_string_equal(s->command.workdir, "/tmp");
    assert_int_equal(s->command.grace_s, 0);
    spec_free(s);
}

static void a_spec_printed_and_read_again_is_the_same(void **state)
{
    static const char *const texts[] = {
        MINIMAL,
        "command: {argv: [a, b], env: {A: x}}",
        "name: n\npriority: 7\ntrain:\n  model: {preset: gpt2-tiny, dropout: 0.1, tie_embeddings: false}\n"
        "  data: {path: /x, format: jsonl, holdout: 0.05, order: sequential}\n  init: {seed: 9, from: /w}\n"
        "  batch: {sequences: 16, micro: 2, length: 64}\n  steps: 300\n"
        "  optimizer: {lr: 1e-3, betas: [0.8, 0.99], clip: 0, warmup: 3}\n"
        "parallel: {tp: auto, pp: 2, virtual_workers: 4}\ndevices: {min: 4, max: 16, classes: [cpu, h200]}\n"
        "checkpoint: {dir: /c, keep: 2}\n",
    };

    (void)state;
    for (size_t i = 0; i < COUNT(texts); i++) {
        struct job_spec *s = good(texts[i]), *again = NULL;
        json_t *one = spec_to_json(s), *two;
        char *text = json_dumps(one, 0);
        struct faults f = {.n = 0};

        assert_int_equal(spec_from_text(text, strlen(text), &again, &f), 0);
        two = spec_to_json(again);
        assert_true(json_equal(one, two));
        json_decref(one);
        json_decref(two);
        free(text);
        spec_free(s);
        spec_free(again);
    }
}

static void yaml_reads_as_its_json(void **state)
{
    static const struct {
        const char *yaml, *json;
    } rows[] = {
        {"a: 1\nb: -2\nc: 1.5\nd: 6e-4\ne: .5\n", "{\"a\":1,\"b\":-2,\"c\":1.5,\"d\":0.0006,\"e\":0.5}"},
        {"a: true\nb: False\nc: ~\nd:\n", "{\"a\":true,\"b\":false,\"c\":null,\"d\":null}"},
        {"a: '1'\nb: \"true\"\nc: yes\nd: 1e\n", "{\"a\":\"1\",\"b\":\"true\",\"c\":\"yes\",\"d\":\"1e\"}"},
        {"a: &x [1, {b: c}]\nd: *x\n", "{\"a\":[1,{\"b\":\"c\"}],\"d\":[1,{\"b\":\"c\"}]}"},
        {"a: |\n  two\n  lines\n", "{\"a\":\"two\\nlines\\n\"}"},
        {"---\n- x\n...\n", "[\"x\"]"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        json_t *got = NULL, *want = json_loads(rows[i].json, 0, NULL);
        struct faults f = {.n = 0};

        assert_int_equal(spec_document(rows[i].yaml, strlen(rows[i].yaml), &got, &f), 0);
        assert_true(json_equal(got, want));
        json_decref(got);
        json_decref(want);
    }
}

static void bad_text_is_refused_with_its_line(void **state)
{
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"a: 1\na: 2\n", "line 2, column 1: a key that is there twice"},
        {"{\"a\":1,\n\"a\":2}", "line 2"},
        {"{\"a\":", "line 1"},
        {"a: [1\n", "line 2"},
        {"a: *nothing\n", "alias without its anchor"},
        {"a: &x [*x]\n", "alias without its anchor"},
        {"a: !!python/x y\n", "tags"},
        {"a: 1\n---\nb: 2\n", "second document"},
        {"<<: {a: 1}\n", "merge keys"},
        {"[a]: 1\n", "a key must be plain text"},
        {"a: 99999999999999999999\n", "out of range"},
        {"a: 1e999\n", "out of range"},
        {"# nothing\n", "empty"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        json_t *got = NULL;
        struct faults f = {.n = 0};

        assert_int_equal(spec_document(rows[i].text, strlen(rows[i].text), &got, &f), -EINVAL);
        assert_null(got);
        assert_int_equal(f.n, 1);
        if (!strstr(f.v[0].message, rows[i].says))
            fail_msg("%s: %s", rows[i].text, f.v[0].message);
        faults_clear(&f);
    }
}

static void aliases_cannot_grow_without_limit(void **state)
{
    struct buf b;
    json_t *got = NULL;
    struct faults f = {.n = 0};

    (void)state;
    buf_init(&b, 1 << 16);
    buf_addstr(&b, "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for (int i = 1; i < 9; i++) {
        buf_printf(&b, "a%d: &a%d [", i, i);
        for (int j = 0; j < 10; j++)
            buf_printf(&b, "%s*a%d", j ? ", " : "", i - 1);
        buf_addstr(&b, "]\n");
    }
    assert_int_equal(spec_document(b.data, b.len, &got, &f), -EINVAL);
    assert_non_null(strstr(f.v[0].message, "too many values"));
    faults_clear(&f);
    buf_reset(&b);
    for (int i = 0; i < 100; i++)
        buf_addstr(&b, "[");
    assert_int_equal(spec_document(b.data, b.len, &got, &f), -EINVAL);
    assert_non_null(strstr(f.v[0].message, "nested too deeply"));
    faults_clear(&f);
    buf_clear(&b);
}

static void the_schema_names_every_default(void **state)
{
    json_t *schema = spec_schema(), *train;

    (void)state;
    assert_non_null(schema);
    train = json_object_get(json_object_get(json_object_get(schema, "properties"), "train"), "properties");
    assert_int_equal(json_integer_value(json_object_get(json_object_get(train, "steps"), "default")), 1000);
    assert_non_null(json_object_get(json_object_get(train, "model"), "anyOf"));
    json_decref(schema);
}

static void relative_paths_are_named_for_a_server(void **state)
{
    struct faults f = {.n = 0};
    json_t *doc = json_pack("{s:{s:{s:s,s:i},s:{s:s}},s:{s:s}}", "train", "data", "path", "corpus.txt",
                            "tokenizer_path", 5, "init", "from", "/weights", "command", "workdir", "here");

    (void)state;
    spec_check_paths(doc, &f);
    assert_int_equal(f.n, 2);
    assert_string_equal(f.v[0].pointer, "/train/data/path");
    assert_string_equal(f.v[1].pointer, "/command/workdir");
    faults_clear(&f);
    json_decref(doc);
    doc = json_string("train");
    spec_check_paths(doc, &f);
    assert_int_equal(f.n, 0);
    json_decref(doc);
}

static void the_reference_is_the_one_in_docs(void **state)
{
    struct buf b, file;
    FILE *in = fopen("docs/spec.md", "re");
    char part[4096];
    size_t n;

    (void)state;
    buf_init(&b, 1 << 20);
    buf_init(&file, 1 << 20);
    assert_int_equal(spec_reference(&b), 0);
    assert_non_null(in);
    while ((n = fread(part, 1, sizeof(part), in)) > 0)
        buf_add(&file, part, n);
    (void)fclose(in);
    if (strcmp(buf_text(&b), buf_text(&file)) != 0)
        fail_msg("docs/spec.md is not what the table says: run 'make docs/spec.md'");
    buf_clear(&b);
    buf_clear(&file);
}

/* What would stand below a value of the wrong kind is not missing as well. */
static void a_value_that_should_be_an_object_is_one_fault(void **state)
{
    static const struct {
        const char *text, *pointer;
    } rows[] = {
        {"{\"command\":5}", "/command"},
        {"{\"command\":null}", "/command"},
        {"{\"command\":[\"true\"]}", "/command"},
        {"{\"train\":{\"model\":\"gpt2-tiny\",\"data\":\"corpus.txt\"}}", "/train/data"},
        {"{\"train\":{\"model\":3,\"data\":{\"path\":\"x\"}}}", "/train/model"},
        {"{\"train\":true}", "/train"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct faults f = {.n = 0};
        struct job_spec *s = NULL;

        assert_int_equal(spec_from_text(rows[i].text, strlen(rows[i].text), &s, &f), -EINVAL);
        if (f.n != 1 || strcmp(f.v[0].pointer, rows[i].pointer) != 0)
            fail_msg("%s: %zu faults, the last: %s: %s", rows[i].text, f.n, f.v[f.n - 1].pointer, f.v[f.n - 1].message);
        faults_clear(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_preset_and_a_path_are_enough),
        cmocka_unit_test(defaults_follow_what_is_given),
        cmocka_unit_test(each_fault_is_named_where_it_is),
        cmocka_unit_test(a_value_that_should_be_an_object_is_one_fault),
        cmocka_unit_test(all_faults_come_at_once),
        cmocka_unit_test(more_faults_than_the_table_holds_are_counted),
        cmocka_unit_test(commands_are_read_in_both_forms),
        cmocka_unit_test(a_spec_printed_and_read_again_is_the_same),
        cmocka_unit_test(yaml_reads_as_its_json),
        cmocka_unit_test(bad_text_is_refused_with_its_line),
        cmocka_unit_test(aliases_cannot_grow_without_limit),
        cmocka_unit_test(the_schema_names_every_default),
        cmocka_unit_test(relative_paths_are_named_for_a_server),
        cmocka_unit_test(the_reference_is_the_one_in_docs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
