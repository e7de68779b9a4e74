/* A code that becomes the token of a node: whatever is cut off in between, the same code and token are sent again. */
#include "tests/unit/folder.h"
#include "tests/unit/worker/agent/fake_calls.h"

#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/protocol/join.h"
#include "worker/agent/join.h"

static const char code[] = "mjc_111111111111111111111111111111111111111111111111";
static const char other[] = "mjc_222222222222222222222222222222222222222222222222";
static const char taken[] = "{\"node\": \"n1\"}";

static char state_dir[PATH_MAX];
static struct {
    int status;
    const char *body;
} answers[8];
static size_t n_answers;
static int told; /* the descriptor by which an agent is told to end */

/* Each call ends by the next answer. Without one, the agent is told to end. */
static void answer(void)
{
    struct fake_call *c = fake_call_of("/v1/agents/join");

    if (c && n_answers > 0) {
        n_answers--;
        fake_call_end(c, answers[0].status, answers[0].body);
        memmove(answers, answers + 1, n_answers * sizeof(answers[0]));
    } else {
        assert_int_equal(eventfd_write(told, 1), 0);
    }
}

static void will_answer(int status, const char *body)
{
    answers[n_answers].status = status;
    answers[n_answers++].body = body;
}

static int begin(void **state)
{
    static int n;

    (void)state;
    (void)snprintf(state_dir, sizeof(state_dir), "%s/%d", top, n++);
    fake_calls.waited = answer;
    n_answers = 0;
    told = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return told < 0 || mkdir(state_dir, 0700) < 0;
}

static int finish(void **state)
{
    (void)state;
    fake_calls_clear();
    return close(told);
}

static struct merr err;
static char file[PATH_MAX], node[JOIN_NODE_MAX];

static int join(const char *with)
{
    struct join_cfg cfg = {.state = state_dir, .server = "http://127.0.0.1:1", .code = with, .signal_fd = told};

    err.text[0] = file[0] = node[0] = '\0';
    return join_token(&cfg, file, node, &err);
}

/* The token of the i-th call. */
static const char *sent(size_t i)
{
    static char text[2][128];
    const char *at = strstr(fake_calls.v[i].body, "mst_");
    char *ret = text[i % 2];

    assert_non_null(at);
    (void)snprintf(ret, sizeof(text[0]), "%.*s", JOIN_SECRET_LENGTH, at);
    return ret;
}

static void check_kept(const char *token)
{
    char line[128] = "";
    struct stat st;
    FILE *f = fopen(file, "re");

    assert_non_null(f);
    assert_non_null(fgets(line, sizeof(line), f));
    assert_int_equal(fstat(fileno(f), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    (void)fclose(f);
    assert_int_equal(strncmp(line, token, JOIN_SECRET_LENGTH), 0);
}

static void a_code_is_traded_once_and_passed_over_from_then_on(void **state)
{
    (void)state;
    will_answer(201, taken);
    assert_int_equal(join(code), 0);
    assert_string_equal(node, "n1");
    check_kept(sent(0));
    assert_int_equal(join(code), 0);
    assert_int_equal(join(NULL), 0);
    assert_string_equal(node, "n1");
    assert_int_equal(fake_calls.n, 1);
}

static void another_code_makes_another_token(void **state)
{
    (void)state;
    will_answer(201, taken);
    will_answer(201, "{\"node\": \"n2\"}");
    assert_int_equal(join(code), 0);
    assert_int_equal(join(other), 0);
    assert_string_equal(node, "n2");
    assert_string_not_equal(sent(0), sent(1));
    check_kept(sent(1));
}

static void who_is_ended_before_the_answer_sends_the_same_token_again(void **state)
{
    eventfd_t n;

    (void)state;
    assert_int_equal(join(code), -EINTR);
    assert_int_equal(eventfd_read(told, &n), 0);
    will_answer(200, taken);
    assert_int_equal(join(code), 0);
    assert_int_equal(fake_calls.n, 2);
    assert_string_equal(sent(0), sent(1));
    check_kept(sent(1));
}

static void a_half_written_trade_is_begun_anew(void **state)
{
    static const char *const damages[] = {"", "x\n", "0123 mst_short\n"};
    char path[PATH_MAX + 16];

    (void)state;
    (void)snprintf(path, sizeof(path), "%s/joining", state_dir);
    for (size_t i = 0; i < COUNT(damages); i++) {
        eventfd_t n;

        assert_int_equal(io_write_file(path, damages[i], strlen(damages[i]), 0600, NULL), 0);
        assert_int_equal(join(code), -EINTR);
        assert_int_equal(eventfd_read(told, &n), 0);
        assert_int_equal(strlen(sent(fake_calls.n - 1)), JOIN_SECRET_LENGTH);
    }
}

static void a_server_that_does_not_answer_or_is_busy_is_asked_again(void **state)
{
    (void)state;
    will_answer(-EHOSTUNREACH, "");
    will_answer(429, "{}");
    will_answer(201, taken);
    assert_int_equal(join(code), 0);
    assert_int_equal(fake_calls.n, 3);
    assert_string_equal(sent(0), sent(1));
}

static void a_refusal_is_told_in_the_servers_words_and_keeps_nothing(void **state)
{
    (void)state;
    will_answer(401, "{\"detail\": \"the code was traded already\"}");
    assert_int_equal(join(code), -EPERM);
    assert_non_null(strstr(err.text, "the code was traded already"));
    assert_int_equal(join(NULL), -ENOENT);
    will_answer(-EACCES, "");
    assert_int_equal(join(code), -EACCES);
}

static void an_answer_that_names_no_node_is_none(void **state)
{
    (void)state;
    will_answer(201, "{\"node\": \"../n1\"}");
    will_answer(201, "rubbish");
    will_answer(201, taken);
    assert_int_equal(join(code), 0);
    assert_string_equal(node, "n1");
    assert_int_equal(fake_calls.n, 3);
}

static void what_is_no_code_is_refused_before_anybody_is_asked(void **state)
{
    static const char *const bad[] = {"", "mjc_", "mst_111111111111111111111111111111111111111111111111",
                                      "mjc_11111111111111111111111111111111111111111111111g"};

    (void)state;
    for (size_t i = 0; i < COUNT(bad); i++)
        assert_int_equal(join(bad[i]), -EINVAL);
    assert_int_equal(fake_calls.n, 0);
}

static void files_that_others_can_read_are_refused_by_name(void **state)
{
    char path[PATH_MAX + 16];

    (void)state;
    will_answer(201, taken);
    assert_int_equal(join(code), 0);
    (void)snprintf(path, sizeof(path), "%s/joined", state_dir);
    assert_int_equal(chmod(path, 0644), 0);
    assert_int_equal(join(NULL), -EPERM);
    assert_non_null(strstr(err.text, "joined"));
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, finish)
    const struct CMUnitTest tests[] = {
        TEST(a_code_is_traded_once_and_passed_over_from_then_on),
        TEST(another_code_makes_another_token),
        TEST(who_is_ended_before_the_answer_sends_the_same_token_again),
        TEST(a_half_written_trade_is_begun_anew),
        TEST(a_server_that_does_not_answer_or_is_busy_is_asked_again),
        TEST(a_refusal_is_told_in_the_servers_words_and_keeps_nothing),
        TEST(an_answer_that_names_no_node_is_none),
        TEST(what_is_no_code_is_refused_before_anybody_is_asked),
        TEST(files_that_others_can_read_are_refused_by_name),
    };

    return cmocka_run_group_tests(tests, make_top, remove_top);
}
