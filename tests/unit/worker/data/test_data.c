#include "tests/unit/test.h"

#include "tests/unit/worker/corpus_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "worker/engine/data/corpus.h"
#include "worker/engine/data/data.h"

static int setup(void **state)
{
    struct corpus_folder *f = calloc(1, sizeof(*f));

    if (!f || corpus_folder_init(f, DATA_TEXT, 4) < 0)
        return -1;
    f->spec.train.data.order = ORDER_SEQUENTIAL;
    f->spec.train.batch.sequences = 3;
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    int rc = corpus_folder_clear(*state);

    free(*state);
    return rc;
}

static struct data *must_open(struct corpus_folder *f)
{
    struct data *d = NULL;
    int rc = data_open(&f->spec, &d, &f->err);

    if (rc < 0)
        fail_msg("cannot open: %s", f->err.text);
    return d;
}

static void must_refuse(struct corpus_folder *f, int code, const char *words)
{
    struct data *d = NULL;

    f->err.text[0] = '\0';
    assert_int_equal(data_open(&f->spec, &d, &f->err), code);
    assert_null(d);
    corpus_folder_said(f, words);
}

/* n tokens 0, 1, 2 ... as uint16 or uint32. */
static void put_counting(struct corpus_folder *f, unsigned n, unsigned width)
{
    unsigned char *raw = calloc(n, width);

    assert_non_null(raw);
    for (unsigned i = 0; i < n; i++) {
        raw[i * width] = (unsigned char)i;
        raw[i * width + 1] = (unsigned char)(i >> 8);
    }
    corpus_folder_put(f, raw, (size_t)n * width);
    free(raw);
}

static void sequential_tokens_are_cut_and_shifted_as_promised(void **state)
{
    static const int vocab[] = {1000, 65536, 65537};
    struct corpus_folder *f = *state;

    f->spec.train.data.format = DATA_TOKENS;
    for (size_t v = 0; v < COUNT(vocab); v++) {
        struct data_info info;
        struct data *d;

        f->spec.train.model.vocab = vocab[v];
        put_counting(f, 32, vocab[v] > 65536 ? 4 : 2); /* 31 / 4 = 7 whole samples */
        d = must_open(f);
        data_get_info(d, &info);
        assert_int_equal(info.train_samples, 7);
        assert_int_equal(info.heldout_samples, 0);
        assert_int_equal(info.end_token, -1);
        for (uint64_t step = 0; step < 6; step++) {
            int32_t token[12], target[12];

            assert_int_equal(data_train(d, step, 0, 3, token, target, NULL), 0);
            for (uint64_t i = 0; i < 12; i++) {
                uint64_t first = (step * 3 + i / 4) % 7 * 4;

                assert_int_equal(token[i], first + i % 4);
                assert_int_equal(target[i], first + i % 4 + 1);
            }
        }
        data_close(d);
    }
}

static void a_range_of_the_batch_is_the_same_wherever_it_is_fetched(void **state)
{
    struct corpus_folder *f = *state;
    int32_t all[12], all_next[12], one[4], next[4];
    struct data *d;

    f->spec.train.data.format = DATA_TOKENS;
    f->spec.train.data.order = ORDER_SHUFFLE;
    f->spec.train.model.vocab = 5000;
    put_counting(f, 4001, 2);
    d = must_open(f);
    for (uint64_t step = 0; step < 700; step += 99) {
        assert_int_equal(data_train(d, step, 0, 3, all, all_next, NULL), 0);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(data_train(d, step, i, 1, one, next, NULL), 0);
            assert_memory_equal(one, all + 4 * i, sizeof(one));
            assert_memory_equal(next, all_next + 4 * i, sizeof(next));
        }
    }
    data_close(d);
}

static void each_epoch_of_a_shuffle_shows_each_sample_once_in_an_order_of_its_own(void **state)
{
    struct corpus_folder *f = *state;
    uint64_t order[2][100];
    int same = 0;
    struct data *d;

    f->spec.train.data.format = DATA_TOKENS;
    f->spec.train.data.order = ORDER_SHUFFLE;
    f->spec.train.model.vocab = 5000;
    put_counting(f, 401, 2);
    d = must_open(f);
    for (uint64_t epoch = 0; epoch < 2; epoch++) {
        char seen[100] = {0};

        for (uint64_t i = 0; i < 100; i++) {
            uint64_t at = data_sample_index(d, epoch * 100 + i);

            assert_true(at < 100);
            assert_false(seen[at]);
            seen[at] = 1;
            order[epoch][i] = at;
        }
    }
    for (int i = 0; i < 100; i++)
        same += order[0][i] == order[1][i];
    assert_true(same < 20);
    data_close(d);
    f->spec.train.init.seed = 77;
    d = must_open(f);
    same = 0;
    for (uint64_t i = 0; i < 100; i++)
        same += data_sample_index(d, i) == order[0][i];
    assert_true(same < 20);
    data_close(d);
}

static void tokens_hold_out_whole_samples_at_the_tail(void **state)
{
    static const struct {
        double share;
        unsigned held;
    } edge[] = {
        {0.001, 1}, {0.2, 1}, {0.29, 2}, {0.5, 3}, {0.99, 6},
    };
    struct corpus_folder *f = *state;

    f->spec.train.data.format = DATA_TOKENS;
    f->spec.train.model.vocab = 1000;
    put_counting(f, 32, 2);
    for (size_t e = 0; e < COUNT(edge); e++) {
        struct data_info info;
        struct data *d;
        int32_t token[4], target[4];

        f->spec.train.data.holdout = edge[e].share;
        d = must_open(f);
        data_get_info(d, &info);
        assert_int_equal(info.heldout_samples, edge[e].held);
        assert_int_equal(info.train_samples, 7 - edge[e].held);
        assert_int_equal(data_heldout(d, 0, 1, token, target, NULL), 0);
        assert_int_equal(token[0], 4 * (7 - edge[e].held));
        assert_int_equal(data_heldout(d, edge[e].held - 1, 1, token, target, NULL), 0);
        assert_int_equal(token[3], 27);
        assert_int_equal(target[3], 28);
        data_close(d);
    }
}

static void text_of_one_document_is_its_bytes(void **state)
{
    static const char text[] = "hello, \xc3\xa9t\xc3\xa9!";
    struct corpus_folder *f = *state;
    int32_t token[4], target[4];
    struct data *d;

    corpus_folder_put(f, text, sizeof(text) - 1);
    d = must_open(f);
    assert_int_equal(data_train(d, 0, 1, 1, token, target, NULL), 0);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(token[i], (unsigned char)text[4 + i]);
        assert_int_equal(target[i], (unsigned char)text[5 + i]);
    }
    data_close(d);
}

static void documents_split_at_their_separators(void **state)
{
    static const struct {
        enum data_format format;
        enum data_separator separator;
        const char *text, *joined; /* documents, each followed by '|' */
    } edge[] = {
        {DATA_TEXT, SEPARATE_BLANK, "a\nb\n\nc\n", "a\nb\n|c\n|"},
        {DATA_TEXT, SEPARATE_BLANK, "\n\n\na\n\n\n\nc", "a\n|c|"},
        {DATA_TEXT, SEPARATE_BLANK, "a\r\n\r\nb\r\n", "a\r\n|b\r\n|"},
        {DATA_TEXT, SEPARATE_BLANK, "a\n \nb\n", "a\n \nb\n|"},
        {DATA_TEXT, SEPARATE_BLANK, "\n\r\n", ""},
        {DATA_TEXT, SEPARATE_PERCENT, "a\n%\nb\n\nc\n%\n", "a\n|b\n\nc\n|"},
        {DATA_TEXT, SEPARATE_PERCENT, "%\n%%\n%", "%%\n|"},
        {DATA_TEXT, SEPARATE_PERCENT, "a\r\n%\r\nb", "a\r\n|b|"},
        {DATA_TEXT, SEPARATE_NONE, "a\n\n%\nb", "a\n\n%\nb|"},
        {DATA_JSONL, SEPARATE_NONE, "{\"text\":\"a\"}\n\n{\"id\":1,\"text\":\"\\u00e9\\n\"}", "a|\xc3\xa9\n|"},
        {DATA_JSONL, SEPARATE_NONE, "{\"text\":\"\"}\n  \r\n{\"text\":\"x\"}\r\n", "x|"},
    };

    (void)state;
    for (size_t e = 0; e < COUNT(edge); e++) {
        struct documents docs;
        struct merr err = {""};
        char joined[64];
        size_t n = 0, begin = 0;

        assert_int_equal(documents_split(&(struct corpus_form){"f", edge[e].format, edge[e].separator}, edge[e].text,
                                         strlen(edge[e].text), &docs, &err),
                         0);
        for (size_t i = 0; i < docs.n; begin = docs.end[i++]) {
            memcpy(joined + n, docs.text + begin, docs.end[i] - begin);
            n += docs.end[i] - begin;
            joined[n++] = '|';
        }
        joined[n] = '\0';
        assert_string_equal(joined, edge[e].joined);
        documents_clear(&docs);
    }
}

static void a_broken_line_is_named_by_its_number(void **state)
{
    static const struct {
        const char *text, *words;
    } edge[] = {
        {"{\"text\": \"a\"}\nnonsense\n", "line 2"},
        {"{\"text\": \"a\"}\n\n\n{\"text\": 1}\n", "line 4"},
        {"[\"text\"]\n", "line 1"},
        {"{\"texts\": \"a\"}\n", "no string \"text\""},
        {"{\"text\": \"\xff\"}\n", "line 1"},
        {"{\"text\": \"a\", \"text\": \"b\"}\n", "line 1"},
        {"{\"text\": \"a\"} {\"text\": \"b\"}\n", "line 1"},
        {"{\"text\": \"a", "line 1"},
    };
    struct corpus_folder *f = *state;

    f->spec.train.data.format = DATA_JSONL;
    for (size_t e = 0; e < COUNT(edge); e++) {
        corpus_folder_put(f, edge[e].text, strlen(edge[e].text));
        must_refuse(f, -EINVAL, edge[e].words);
        assert_non_null(strstr(f->err.text, f->path));
    }
}

static void documents_are_marked_and_held_out_whole(void **state)
{
    static const int vocab[] = {256, 257, 50257};
    struct corpus_folder *f = *state;
    char text[100 * 16];
    size_t len = 0;

    for (int i = 0; i < 100; i++)
        len += (size_t)snprintf(text + len, sizeof(text) - len,
                                "%%\n"
                                "d%03d\n",
                                i);
    corpus_folder_put(f, text, len);
    f->spec.train.data.separator = SEPARATE_PERCENT;
    f->spec.train.data.holdout = 0.2;
    f->spec.train.batch.length = 6; /* "d000\n" and the mark: a document a sample */
    for (size_t v = 0; v < COUNT(vocab); v++) {
        struct data_info info;
        char seen[100] = {0};
        struct data *d;
        int32_t token[6], target[6];

        f->spec.train.model.vocab = vocab[v];
        d = must_open(f);
        data_get_info(d, &info);
        assert_int_equal(info.end_token, vocab[v] > 256 ? 256 : 0);
        assert_int_equal(info.train_documents + info.heldout_documents, 100);
        assert_in_range(info.heldout_documents, 8, 32);
        assert_int_equal(info.train_tokens, 6 * info.train_documents);
        assert_int_equal(info.heldout_samples, info.heldout_documents);
        for (uint64_t i = 0; i < info.heldout_samples; i++) {
            int number;

            assert_int_equal(data_heldout(d, i, 1, token, target, NULL), 0);
            assert_int_equal(token[0], 'd');
            if (i + 1 < info.heldout_samples)
                assert_int_equal(token[5], info.end_token);
            number = (token[1] - '0') * 100 + (token[2] - '0') * 10 + token[3] - '0';
            assert_in_range(number, 0, 99);
            assert_false(seen[number]);
            seen[number] = 1;
        }
        assert_int_equal(target[5], -1); /* nothing follows the last mark */
        assert_int_equal(target[4], info.end_token);
        for (uint64_t i = 0; i < info.train_samples; i++) {
            assert_int_equal(data_train(d, i / 3, (int)(i % 3), 1, token, target, NULL), 0);
            assert_false(seen[(token[1] - '0') * 100 + (token[2] - '0') * 10 + token[3] - '0']);
        }
        data_close(d);
    }
}

static void each_side_keeps_a_document_however_small_the_share(void **state)
{
    static const double share[] = {1e-9, 0.5, 0.999999};
    struct corpus_folder *f = *state;

    corpus_folder_put(f, "first document\n\nsecond document\n", 32);
    f->spec.train.data.separator = SEPARATE_BLANK;
    for (uint64_t seed = 0; seed < 20; seed++) {
        for (size_t s = 0; s < COUNT(share); s++) {
            struct data_info info;
            struct data *d;

            f->spec.train.init.seed = seed;
            f->spec.train.data.holdout = share[s];
            d = must_open(f);
            data_get_info(d, &info);
            assert_int_equal(info.train_documents, 1);
            assert_int_equal(info.heldout_documents, 1);
            data_close(d);
        }
    }
}

static void the_entropy_of_single_tokens_is_exact(void **state)
{
    struct corpus_folder *f = *state;
    double nats = -1;
    struct data *d;

    corpus_folder_put(f, "aabbaabb", 8);
    d = must_open(f);
    assert_int_equal(data_unigram(d, &nats, NULL), 0);
    assert_true(fabs(nats - log(2)) < 1e-12);
    data_close(d);
    corpus_folder_put(f, "aaaaaaaa", 8);
    d = must_open(f);
    assert_int_equal(data_unigram(d, &nats, NULL), 0);
    assert_true(fabs(nats) < 1e-12);
    data_close(d);
    put_counting(f, 1024, 2);
    f->spec.train.data.format = DATA_TOKENS;
    f->spec.train.model.vocab = 1024;
    d = must_open(f);
    assert_int_equal(data_unigram(d, &nats, NULL), 0);
    assert_true(fabs(nats - log(1024)) < 1e-12);
    data_close(d);
}

static void a_corpus_that_cannot_serve_is_refused_with_words(void **state)
{
    struct corpus_folder *f = *state;

    must_refuse(f, -ENOENT, f->path);
    f->spec.train.data.path = f->dir;
    must_refuse(f, -EISDIR, "directory");
    f->spec.train.data.path = NULL;
    must_refuse(f, -EINVAL, "train.data.path");
    f->spec.train.data.path = f->path;
    corpus_folder_put(f, "", 0);
    must_refuse(f, -EINVAL, "empty");
    corpus_folder_put(f, "abcd", 4);
    must_refuse(f, -EINVAL, "4 tokens");
    corpus_folder_put(f, "abcde", 5);
    data_close(must_open(f));
    f->spec.train.data.holdout = 0.1;
    must_refuse(f, -EINVAL, "hold-out");
    f->spec.train.data.holdout = 0;
    f->spec.train.model.vocab = 255;
    must_refuse(f, -EINVAL, "255");
    f->spec.train.model.vocab = 256;
    f->spec.train.data.separator = SEPARATE_BLANK;
    corpus_folder_put(f, "\n\n\n", 3);
    must_refuse(f, -EINVAL, "no text");
    f->spec.train.data.format = DATA_TOKENS;
    corpus_folder_put(f, "abcdefghijk", 11);
    must_refuse(f, -EINVAL, "uint16");
    f->spec.train.model.vocab = 100000;
    must_refuse(f, -EINVAL, "uint32");
}

/* " the" is a token of the vocabulary of test_tokenizer; "q" is a byte. */
static void documents_become_the_tokenizers_tokens(void **state)
{
    static const char text[] = " the the\n\nq the the q\n";
    static const int vocabs[] = {1000, 100000}; /* 2 and 4 bytes a token */
    struct corpus_folder *f = *state;
    int32_t token[2][8], target[2][8];

    corpus_folder_put(f, text, sizeof(text) - 1);
    f->spec.train.data.separator = SEPARATE_BLANK;
    f->spec.train.data.tokenizer = TOKENIZER_GPT2;
    f->spec.train.data.tokenizer_path = (char *)"tests/unit/worker/tokenizer";
    f->spec.train.batch.length = 8;
    f->spec.train.batch.sequences = 1;
    for (size_t i = 0; i < COUNT(vocabs); i++) {
        struct data_info info;
        struct data *d;

        f->spec.train.model.vocab = vocabs[i];
        d = must_open(f);
        data_get_info(d, &info);
        assert_int_equal(info.train_documents, 2);
        assert_int_equal(info.train_tokens, 11);
        assert_int_equal(data_train(d, 0, 0, 1, token[i], target[i], &f->err), 0);
        assert_int_equal(token[i][2], '\n');
        assert_int_equal(token[i][3], info.end_token);
        assert_int_equal(token[i][4], 'q');
        assert_true(token[i][0] > 255 && token[i][0] < info.end_token); /* " the" */
        assert_int_equal(token[i][1], token[i][0]);
        assert_int_equal(token[i][5], token[i][0]);
        assert_int_equal(target[i][3], 'q');
        data_close(d);
    }
    assert_memory_equal(token[0], token[1], sizeof(token[0]));
}

static void a_tokenizer_that_does_not_fit_is_refused(void **state)
{
    static const char text[] = "some text\n\nbad \xff text\n";
    struct corpus_folder *f = *state;

    corpus_folder_put(f, text, sizeof(text) - 1);
    f->spec.train.data.separator = SEPARATE_BLANK;
    f->spec.train.data.tokenizer = TOKENIZER_GPT2;
    must_refuse(f, -EINVAL, "tokenizer_path");
    f->spec.train.data.tokenizer_path = f->dir;
    must_refuse(f, -ENOENT, "tokenizer.json");
    f->spec.train.data.tokenizer_path = (char *)"tests/unit/worker/tokenizer";
    must_refuse(f, -EINVAL, "vocabulary of 256");
    f->spec.train.model.vocab = 1000;
    must_refuse(f, -EINVAL, "document 2");
}

static void a_special_file_is_refused_without_waiting_for_it(void **state)
{
    struct corpus_folder *f = *state;

    f->spec.train.data.path = (char *)"/dev/null";
    must_refuse(f, -EINVAL, "regular");
}

static void a_token_outside_the_vocabulary_is_named_by_its_offset(void **state)
{
    struct corpus_folder *f = *state;

    f->spec.train.data.format = DATA_TOKENS;
    f->spec.train.model.vocab = 30;
    put_counting(f, 32, 2);
    must_refuse(f, -EINVAL, "token 30");
    assert_non_null(strstr(f->err.text, "byte offset 60"));
    f->spec.train.model.vocab = 31;
    must_refuse(f, -EINVAL, "token 31");
    f->spec.train.model.vocab = 32;
    data_close(must_open(f));
}

static void a_file_that_shrinks_is_an_error_not_a_crash(void **state)
{
    struct corpus_folder *f = *state;
    int32_t token[12], target[12];
    struct data *d;

    corpus_folder_put(f, "0123456789012345678901234567890", 31);
    d = must_open(f);
    assert_int_equal(truncate(f->path, 5), 0);
    assert_int_equal(data_train(d, 0, 0, 1, token, target, &f->err), 0);
    assert_int_equal(data_train(d, 0, 0, 3, token, target, &f->err), -EIO);
    assert_non_null(strstr(f->err.text, "shrunk"));
    data_close(d);
}

/* Whether a byte of the file is in the page cache. */
static bool cached(const struct corpus_folder *f, size_t size, size_t at)
{
    unsigned char in;
    int fd = open(f->path, O_RDONLY | O_CLOEXEC);
    char *map = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);

    assert_true(map != MAP_FAILED);
    assert_int_equal(mincore(map + at / 4096 * 4096, 1, &in), 0);
    (void)munmap(map, size);
    (void)close(fd);
    return in & 1;
}

/* On a file system in memory all is cached from the start. */
static void what_is_expected_is_read_before_it_is_asked_for(void **state)
{
    struct corpus_folder *f = *state;
    const size_t size = 16 << 20;
    char *zeros = calloc(1, size);
    int64_t deadline_us = clock_mono_us() + 10000000;
    struct data *d;
    int fd;

    corpus_folder_put(f, zeros, size);
    free(zeros);
    f->spec.train.data.format = DATA_TOKENS;
    d = must_open(f);
    fd = open(f->path, O_RDONLY | O_CLOEXEC);
    assert_int_equal(fsync(fd), 0);
    assert_int_equal(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
    (void)close(fd);
    data_expect(d, 500000, 1, 2); /* sample 1,500,001: byte 12,000,008 */
    while (!cached(f, size, 12000008) && clock_mono_us() < deadline_us)
        (void)poll(NULL, 0, 1);
    assert_true(cached(f, size, 12000008));
    data_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(sequential_tokens_are_cut_and_shifted_as_promised, setup, teardown),
        cmocka_unit_test_setup_teardown(a_range_of_the_batch_is_the_same_wherever_it_is_fetched, setup, teardown),
        cmocka_unit_test_setup_teardown(each_epoch_of_a_shuffle_shows_each_sample_once_in_an_order_of_its_own, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(tokens_hold_out_whole_samples_at_the_tail, setup, teardown),
        cmocka_unit_test_setup_teardown(text_of_one_document_is_its_bytes, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_expected_is_read_before_it_is_asked_for, setup, teardown),
        cmocka_unit_test(documents_split_at_their_separators),
        cmocka_unit_test_setup_teardown(a_broken_line_is_named_by_its_number, setup, teardown),
        cmocka_unit_test_setup_teardown(documents_are_marked_and_held_out_whole, setup, teardown),
        cmocka_unit_test_setup_teardown(each_side_keeps_a_document_however_small_the_share, setup, teardown),
        cmocka_unit_test_setup_teardown(the_entropy_of_single_tokens_is_exact, setup, teardown),
        cmocka_unit_test_setup_teardown(a_corpus_that_cannot_serve_is_refused_with_words, setup, teardown),
        cmocka_unit_test_setup_teardown(documents_become_the_tokenizers_tokens, setup, teardown),
        cmocka_unit_test_setup_teardown(a_tokenizer_that_does_not_fit_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(a_special_file_is_refused_without_waiting_for_it, setup, teardown),
        cmocka_unit_test_setup_teardown(a_token_outside_the_vocabulary_is_named_by_its_offset, setup, teardown),
        cmocka_unit_test_setup_teardown(a_file_that_shrinks_is_an_error_not_a_crash, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
