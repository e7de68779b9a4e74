/* Documents of any length, each read by its number, whatever lies between it and the start of the file. */
#include "tests/unit/test.h"

#include "tests/unit/worker/corpus_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "worker/engine/data/docset.h"

#define END 0 /* the mark of bytes in a vocabulary of 256 */

struct fixture {
    struct corpus_folder folder;
    struct buf ids;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));

    if (!f || corpus_folder_init(&f->folder, DATA_JSONL, 1000) < 0)
        return -1;
    f->folder.spec.train.data.samples = SAMPLES_DOCUMENTS;
    buf_init(&f->ids, DOCSET_IDS_MAX);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    int rc = corpus_folder_clear(&f->folder);

    buf_clear(&f->ids);
    free(f);
    return rc;
}

static void put_text(struct fixture *f, const char *text)
{
    corpus_folder_put(&f->folder, text, strlen(text));
}

static struct docset *must_open(struct fixture *f)
{
    struct docset *d = NULL;

    if (docset_open(&f->folder.spec, &d, &f->folder.err) < 0)
        fail_msg("cannot open: %s", f->folder.err.text);
    return d;
}

static void must_refuse(struct fixture *f, int code, const char *words)
{
    struct docset *d = NULL;

    f->folder.err.text[0] = '\0';
    assert_int_equal(docset_open(&f->folder.spec, &d, &f->folder.err), code);
    assert_null(d);
    corpus_folder_said(&f->folder, words);
}

static const int32_t *read_doc(struct fixture *f, const struct docset *d, enum docset_side side, uint64_t i,
                               struct docset_doc *doc)
{
    buf_reset(&f->ids);
    if (docset_read(d, side, i, &f->ids, doc, &f->folder.err) < 0)
        fail_msg("cannot read document %llu: %s", (unsigned long long)i, f->folder.err.text);
    assert_int_equal(f->ids.len, doc->inputs ? ((size_t)doc->inputs + 1) * sizeof(int32_t) : 0);
    return (const int32_t *)(const void *)f->ids.data;
}

static void must_say(struct fixture *f, const struct docset *d, uint64_t i, const char *text, int masked)
{
    struct docset_doc doc;
    const int32_t *id = read_doc(f, d, DOCSET_TRAIN, i, &doc);

    assert_int_equal(doc.inputs, strlen(text));
    assert_int_equal(doc.masked, masked);
    for (int k = 0; k < doc.inputs; k++)
        assert_int_equal(id[k], (unsigned char)text[k]);
    assert_int_equal(id[doc.inputs], END);
}

static void a_document_ends_with_its_mark_and_a_prompt_is_no_target(void **state)
{
    struct fixture *f = *state;
    struct docset_info info;
    struct docset *d;

    put_text(f, "{\"text\": \"one\"}\n\n  \r\n{\"prompt\": \"2+2=\", \"completion\": \"4\", \"id\": 7}\n"
                "{\"prompt\": \"\", \"completion\": \"three\"}\n{\"prompt\": \"x\", \"completion\": \"y\"}");
    d = must_open(f);
    docset_get_info(d, &info);
    assert_int_equal(info.documents[DOCSET_TRAIN], 4);
    assert_int_equal(info.documents[DOCSET_HELDOUT], 0);
    must_say(f, d, 0, "one", 0);
    must_say(f, d, 1, "2+2=4", 3); /* the last of the prompt predicts the first of the completion */
    must_say(f, d, 2, "three", 0);
    must_say(f, d, 3, "xy", 0);
    docset_close(d);
}

static void text_is_cut_at_its_separators_or_not_at_all(void **state)
{
    static const struct {
        enum data_separator separator;
        const char *text, *want[3];
    } edge[] = {
        {SEPARATE_BLANK, "\n\na\nb\n\n\n\nc", {"a\nb\n", "c"}},
        {SEPARATE_PERCENT, "%\na\n\nb\n%\n%\r\nc\n%\n", {"a\n\nb\n", "c\n"}},
        {SEPARATE_NONE, "a\n\n%\nb", {"a\n\n%\nb"}},
        {SEPARATE_NONE, "\n", {"\n"}},
        {SEPARATE_BLANK, "a", {"a"}},
    };
    struct fixture *f = *state;

    f->folder.spec.train.data.format = DATA_TEXT;
    for (size_t e = 0; e < COUNT(edge); e++) {
        struct docset_info info;
        struct docset *d;

        f->folder.spec.train.data.separator = edge[e].separator;
        put_text(f, edge[e].text);
        d = must_open(f);
        docset_get_info(d, &info);
        for (uint64_t i = 0; i < COUNT(edge[e].want) && edge[e].want[i]; i++) {
            assert_true(i < info.documents[DOCSET_TRAIN]);
            must_say(f, d, i, edge[e].want[i], 0);
        }
        docset_close(d);
    }
}

/* Lengths from nothing to several windows of the look through the file, so that documents lie over its edges. */
static size_t length_of(unsigned i)
{
    return i % 97 == 13 ? 700000 + i : i % 11 == 0 ? 30000 + i : 5 + i % 60;
}

static void any_document_of_a_large_file_is_found_by_its_number(void **state)
{
    enum { DOCUMENTS = 700 };
    struct fixture *f = *state;
    struct docset_info info;
    struct docset *d;
    struct buf file;
    unsigned held = 0;

    buf_init(&file, (size_t)64 << 20);
    for (unsigned i = 0; i < DOCUMENTS; i++) {
        assert_int_equal(buf_printf(&file, "%u:", i), 0);
        for (size_t k = 0; k < length_of(i); k++)
            assert_int_equal(buf_add(&file, "x", 1), 0);
        assert_int_equal(buf_addstr(&file, i % 3 ? "\n\n" : "\n\n\n\n"), 0);
    }
    corpus_folder_put(&f->folder, file.data, file.len);
    buf_clear(&file);
    f->folder.spec.train.data.format = DATA_TEXT;
    f->folder.spec.train.data.separator = SEPARATE_BLANK;
    f->folder.spec.train.batch.length = 1 << 20;
    f->folder.spec.train.data.holdout = 0.2;
    d = must_open(f);
    docset_get_info(d, &info);
    assert_int_equal(info.documents[0] + info.documents[1], DOCUMENTS);
    assert_in_range(info.documents[DOCSET_HELDOUT], DOCUMENTS / 10, DOCUMENTS / 3);
    for (unsigned i = 0, t = 0; i < DOCUMENTS; i++) { /* each is on one side, in the order of the file */
        enum docset_side side = DOCSET_TRAIN;
        struct docset_doc doc;
        char want[16], have[16] = {0};
        const int32_t *id = read_doc(f, d, side, t < info.documents[0] ? t : t - 1, &doc);

        (void)snprintf(want, sizeof(want), "%u:", i);
        for (size_t k = 0; k < strlen(want); k++)
            have[k] = (char)id[k];
        if (strcmp(have, want) == 0) {
            t++;
        } else {
            side = DOCSET_HELDOUT;
            id = read_doc(f, d, side, held++, &doc);
            for (size_t k = 0; k < strlen(want); k++)
                assert_int_equal(id[k], want[k]);
        }
        assert_int_equal(doc.inputs, strlen(want) + length_of(i) + 1);
    }
    assert_int_equal(held, info.documents[DOCSET_HELDOUT]);
    docset_close(d);
}

static void each_side_keeps_a_document_however_small_the_share(void **state)
{
    static const double shares[] = {1e-9, 0.5, 0.999999999};
    struct fixture *f = *state;

    put_text(f, "{\"text\": \"a\"}\n{\"text\": \"b\"}\n{\"text\": \"c\"}\n");
    for (size_t s = 0; s < COUNT(shares); s++) {
        struct docset_info info;
        struct docset *d;
        struct docset_doc doc;

        f->folder.spec.train.data.holdout = shares[s];
        d = must_open(f);
        docset_get_info(d, &info);
        assert_true(info.documents[0] >= 1 && info.documents[1] >= 1 && info.documents[0] + info.documents[1] == 3);
        for (int side = 0; side < 2; side++)
            for (uint64_t i = 0; i < info.documents[side]; i++)
                (void)read_doc(f, d, (enum docset_side)side, i, &doc);
        docset_close(d);
    }
    put_text(f, "{\"text\": \"a\"}\n");
    must_refuse(f, -EINVAL, "one document");
}

static void put_index(struct fixture *f, const uint64_t *end, size_t n)
{
    assert_int_equal(io_publish_file(f->folder.index, end, n * sizeof(*end), 0600, NULL), 0);
}

static void tokens_are_cut_where_their_index_says(void **state)
{
    static const uint64_t end[] = {3, 5, 12};
    static const uint16_t token[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 300};
    struct fixture *f = *state;
    struct docset *d;

    f->folder.spec.train.data.format = DATA_TOKENS;
    f->folder.spec.train.model.vocab = 301;
    corpus_folder_put(&f->folder, token, sizeof(token));
    must_refuse(f, -EINVAL, "train.data.index");
    f->folder.spec.train.data.index = f->folder.index;
    must_refuse(f, -ENOENT, "the index");
    put_index(f, end, COUNT(end));
    d = must_open(f);
    for (unsigned i = 0; i < COUNT(end); i++) {
        unsigned begin = i ? (unsigned)end[i - 1] : 0;
        struct docset_doc doc;
        const int32_t *id = read_doc(f, d, DOCSET_TRAIN, i, &doc);

        assert_int_equal(doc.inputs, end[i] - begin - 1);
        assert_int_equal(doc.masked, 0);
        for (unsigned k = 0; k <= (unsigned)doc.inputs; k++)
            assert_int_equal(id[k], token[begin + k]);
    }
    docset_close(d);
    f->folder.spec.train.model.vocab = 300;
    must_refuse(f, -EINVAL, "token 11 of");
}

static void an_index_that_cannot_be_is_refused(void **state)
{
    static const struct {
        uint64_t end[3];
        const char *says;
    } edge[] = {
        {{3, 2, 6}, "document 2"},
        {{3, 3, 6}, "must rise"},
        {{1, 3, 6}, "two tokens"},
        {{3, 6, 7}, "has 6"},
    };
    static const uint16_t token[6] = {1, 2, 3, 4, 5, 6};
    struct fixture *f = *state;

    f->folder.spec.train.data.format = DATA_TOKENS;
    f->folder.spec.train.data.index = f->folder.index;
    corpus_folder_put(&f->folder, token, sizeof(token));
    for (size_t e = 0; e < COUNT(edge); e++) {
        put_index(f, edge[e].end, 3);
        must_refuse(f, -EINVAL, edge[e].says);
    }
    assert_int_equal(io_publish_file(f->folder.index, "123", 3, 0600, NULL), 0);
    must_refuse(f, -EINVAL, "is the index complete");
    corpus_folder_put(&f->folder, "123", 3);
    must_refuse(f, -EINVAL, "uint16");
}

static void a_document_that_is_too_long_is_refused_cut_or_left_out(void **state)
{
    struct fixture *f = *state;
    struct docset_doc doc;
    const int32_t *id;
    struct docset *d;

    put_text(f, "{\"text\": \"short\"}\n{\"text\": \"much longer\"}\n"
                "{\"prompt\": \"12345678\", \"completion\": \"9\"}\n");
    f->folder.spec.train.batch.length = 5;
    must_refuse(f, -EINVAL, "line 2 of");
    assert_non_null(strstr(f->folder.err.text, "11 tokens, more than batch.length 5"));
    f->folder.spec.train.data.overlong = OVERLONG_CUT;
    d = must_open(f);
    must_say(f, d, 0, "short", 0);
    id = read_doc(f, d, DOCSET_TRAIN, 1, &doc);
    assert_true(doc.inputs == 5 && doc.cut && id[4] == ' ' && id[5] == 'l');
    (void)read_doc(f, d, DOCSET_TRAIN, 2, &doc);
    assert_int_equal(doc.inputs, 0); /* nothing of the completion is left */
    docset_close(d);
    f->folder.spec.train.data.overlong = OVERLONG_DROP;
    d = must_open(f);
    (void)read_doc(f, d, DOCSET_TRAIN, 1, &doc);
    assert_int_equal(doc.inputs, 0);
    docset_close(d);
}

static void a_corpus_that_cannot_serve_is_refused_by_line(void **state)
{
    static const struct {
        const char *text, *says;
    } edge[] = {
        {"{\"text\": \"a\"}\n{\"text\": 3}\n", "line 2 of"},
        {"{\"text\": \"a\"}\n\n{\"text\": \"b\"\n", "line 3 of"},
        {"{\"prompt\": \"a\"}\n", "\"completion\""},
        {"{\"text\": \"a\", \"completion\": \"b\", \"prompt\": \"c\"}\n", "leave one out"},
        {"{\"text\": \"a\"}\n{\"text\": \"\"}\n", "line 2 of"},
        {"{\"prompt\": \"a\", \"completion\": \"\"}\n", "empty \"completion\""},
        {"{\"text\": \"a\xff\"}\n", "line 1 of"},
        {"\n\n", "no text"},
        {"", "is empty"},
    };
    struct fixture *f = *state;

    for (size_t e = 0; e < COUNT(edge); e++) {
        put_text(f, edge[e].text);
        must_refuse(f, -EINVAL, edge[e].says);
    }
    f->folder.spec.train.data.path = (char *)"/nowhere/at/all";
    must_refuse(f, -ENOENT, "/nowhere/at/all");
}

static void text_for_a_tokenizer_must_be_utf8(void **state)
{
    struct fixture *f = *state;
    struct docset_doc doc;
    struct docset *d;

    f->folder.spec.train.data.format = DATA_TEXT;
    f->folder.spec.train.data.separator = SEPARATE_BLANK;
    f->folder.spec.train.data.tokenizer = TOKENIZER_GPT2;
    f->folder.spec.train.data.tokenizer_path = (char *)"tests/unit/worker/tokenizer";
    put_text(f, " the the\n\nq\n");
    must_refuse(f, -EINVAL, "vocabulary of 256");
    f->folder.spec.train.model.vocab = 1000;
    d = must_open(f);
    (void)read_doc(f, d, DOCSET_TRAIN, 0, &doc);
    assert_int_equal(doc.inputs, 3); /* " the", " the", newline */
    docset_close(d);
    put_text(f, " the the\n\nq\nbad \xff\n");
    must_refuse(f, -EINVAL, "line 3 of");
}

static void a_file_that_shrinks_is_an_error_not_a_crash(void **state)
{
    struct fixture *f = *state;
    struct docset *d;
    struct docset_doc doc;

    put_text(f, "{\"text\": \"a\"}\n{\"text\": \"b\"}\n");
    d = must_open(f);
    assert_int_equal(truncate(f->folder.path, 3), 0);
    assert_int_equal(docset_read(d, DOCSET_TRAIN, 1, &f->ids, &doc, &f->folder.err), -EIO);
    assert_non_null(strstr(f->folder.err.text, "shrunk"));
    docset_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_document_ends_with_its_mark_and_a_prompt_is_no_target, setup, teardown),
        cmocka_unit_test_setup_teardown(text_is_cut_at_its_separators_or_not_at_all, setup, teardown),
        cmocka_unit_test_setup_teardown(any_document_of_a_large_file_is_found_by_its_number, setup, teardown),
        cmocka_unit_test_setup_teardown(each_side_keeps_a_document_however_small_the_share, setup, teardown),
        cmocka_unit_test_setup_teardown(tokens_are_cut_where_their_index_says, setup, teardown),
        cmocka_unit_test_setup_teardown(an_index_that_cannot_be_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(a_document_that_is_too_long_is_refused_cut_or_left_out, setup, teardown),
        cmocka_unit_test_setup_teardown(a_corpus_that_cannot_serve_is_refused_by_line, setup, teardown),
        cmocka_unit_test_setup_teardown(text_for_a_tokenizer_must_be_utf8, setup, teardown),
        cmocka_unit_test_setup_teardown(a_file_that_shrinks_is_an_error_not_a_crash, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
