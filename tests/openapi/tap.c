/* Loaded before libcurl: writes down each answer that the command line or an agent gets, for tests/answers.py to hold
 * it to api/openapi.yaml. ANSWERS_TAP names the file, to which each answer is appended as a line, "METHOD URL STATUS
 * TYPE BYTES", and its body. Whatever the program starts itself has nothing of this. */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <curl/curl.h>

#undef curl_easy_setopt
#undef curl_easy_getinfo

#define BODY_MAX (8 << 20)

typedef size_t take_fn(char *data, size_t size, size_t n, void *arg);

struct tapped {
    struct tapped *next;
    CURL *easy;
    char method[16];
    take_fn *take;
    void *arg;
    char *body;
    size_t len;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all */
static struct tapped *all;
static char *file;

__attribute__((constructor)) static void begin(void)
{
    const char *name = getenv("ANSWERS_TAP"), *loaded = getenv("LD_PRELOAD");
    size_t own = loaded ? strcspn(loaded, ":") : 0;

    file = name ? strdup(name) : NULL;
    (void)unsetenv("ANSWERS_TAP");
    if (loaded && own >= 6 && strncmp(loaded + own - 6, "tap.so", 6) == 0) {
        char *rest = loaded[own] ? strdup(loaded + own + 1) : NULL;

        if (rest)
            (void)setenv("LD_PRELOAD", rest, 1);
        else
            (void)unsetenv("LD_PRELOAD");
        free(rest);
    }
}

static struct tapped *find(CURL *easy, int make)
{
    struct tapped *t = all;

    while (t && t->easy != easy)
        t = t->next;
    if (!t && make && (t = calloc(1, sizeof(*t)))) {
        t->easy = easy;
        t->next = all;
        all = t;
    }
    return t;
}

static size_t take(char *data, size_t size, size_t n, void *arg)
{
    struct tapped *t = arg;
    size_t len = size * n;
    char *grown;

    pthread_mutex_lock(&lock);
    grown = t->len + len <= BODY_MAX ? realloc(t->body, t->len + len + 1) : NULL;
    if (grown) {
        t->body = grown;
        memcpy(t->body + t->len, data, len);
        t->len += len;
    }
    pthread_mutex_unlock(&lock);
    return t->take(data, size, n, t->arg);
}

CURLcode curl_easy_setopt(CURL *easy, CURLoption option, ...)
{
    CURLcode (*real)(CURL *, CURLoption, ...) = (CURLcode(*)(CURL *, CURLoption, ...))dlsym(RTLD_NEXT, __func__);
    struct tapped *t = NULL;
    va_list ap;
    void *value;
    CURLcode r;

    va_start(ap, option);
    value = va_arg(ap, void *);
    va_end(ap);
    pthread_mutex_lock(&lock);
    if (file && (option == CURLOPT_CUSTOMREQUEST || option == CURLOPT_WRITEFUNCTION || option == CURLOPT_WRITEDATA))
        t = find(easy, 1);
    if (t && option == CURLOPT_CUSTOMREQUEST) {
        (void)snprintf(t->method, sizeof(t->method), "%s", (const char *)value);
    } else if (t && option == CURLOPT_WRITEFUNCTION) {
        t->take = (take_fn *)value;
        value = (void *)take;
    } else if (t && option == CURLOPT_WRITEDATA) {
        t->arg = value;
        value = t;
    }
    r = real(easy, option, value);
    pthread_mutex_unlock(&lock);
    return r;
}

/* streams: only if it is a stream, whose reader ends it in the middle of the answer. */
static void write_down(struct tapped *t, int streams)
{
    CURLcode (*info)(CURL *, CURLINFO, ...) = (CURLcode(*)(CURL *, CURLINFO, ...))dlsym(RTLD_NEXT, "curl_easy_getinfo");
    const char *url = "", *type = NULL;
    long status = 0;
    char *text;
    int fd, n;

    (void)info(t->easy, CURLINFO_RESPONSE_CODE, &status);
    (void)info(t->easy, CURLINFO_EFFECTIVE_URL, &url);
    (void)info(t->easy, CURLINFO_CONTENT_TYPE, &type);
    if (streams && (!type || strncmp(type, "text/event-stream", 17) != 0))
        return;
    n = asprintf(&text, "%s %s %ld %.*s %zu\n", t->method, url, status, type ? (int)strcspn(type, "; ") : 1,
                 type ? type : "-", t->len);
    if (n >= 0 && (t->len == 0 || (text = realloc(text, (size_t)n + t->len + 1)))) {
        memcpy(text + n, t->body ? t->body : "", t->len);
        text[(size_t)n + t->len] = '\n';
        fd = open(file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
        if (fd >= 0 && write(fd, text, (size_t)n + t->len + (t->len > 0)) >= 0)
            (void)close(fd);
        free(text);
    }
    free(t->body);
    t->body = NULL;
    t->len = 0;
}

CURLMsg *curl_multi_info_read(CURLM *multi, int *left)
{
    CURLMsg *(*real)(CURLM *, int *) = (CURLMsg * (*)(CURLM *, int *)) dlsym(RTLD_NEXT, __func__);
    CURLMsg *m = real(multi, left);
    struct tapped *t;

    pthread_mutex_lock(&lock);
    t = m && m->msg == CURLMSG_DONE ? find(m->easy_handle, 0) : NULL;
    if (t && m->data.result == CURLE_OK)
        write_down(t, 0);
    pthread_mutex_unlock(&lock);
    return m;
}

void curl_easy_cleanup(CURL *easy)
{
    void (*real)(CURL *) = (void (*)(CURL *))dlsym(RTLD_NEXT, __func__);
    struct tapped **at = &all, *gone;

    pthread_mutex_lock(&lock);
    while (*at && (*at)->easy != easy)
        at = &(*at)->next;
    gone = *at;
    if (gone) {
        if (gone->len > 0)
            write_down(gone, 1);
        *at = gone->next;
        free(gone->body);
        free(gone);
    }
    pthread_mutex_unlock(&lock);
    real(easy);
}
