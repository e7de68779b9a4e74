#include "api/client/post.h"

#include <curl/curl.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"
#include "base/version.h"

#define POLL_MS 60000
#define CONNECTIONS_KEPT 4

struct sending {
    struct sending *next;
    struct post *owner;
    CURL *easy;
    struct curl_slist *headers, *to;
    char *body;
    size_t len, at, got;
    uint64_t id;
    int64_t began_us;
    bool mail, trusted, cut;
    char refused[REACH_TEXT_MAX]; /* address that was not called */
    char why[CURL_ERROR_SIZE];
};

struct post {
    struct post_cfg cfg;
    CURLM *multi;
    pthread_t thread;
    pthread_mutex_t lock;          /* guards what follows */
    struct sending *first, **last; /* to be begun */
    size_t n;                      /* of all */
    bool stop;
    struct sending *on_way; /* of the thread alone */
};

static void sending_free(struct sending *s)
{
    if (!s)
        return;
    if (s->easy)
        curl_easy_cleanup(s->easy);
    curl_slist_free_all(s->headers);
    curl_slist_free_all(s->to);
    free(s->body);
    free(s);
}

/* --- what libcurl asks ----------------------------------------------------------------------------------------- */

/* Here an address is known, and nothing was sent there. */
static curl_socket_t open_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *a)
{
    struct sending *s = arg;

    (void)purpose;
    if (s->trusted || (s->mail ? reach_is_loopback(&a->addr) : reach_allows(&s->owner->cfg.reach, &a->addr)))
        return socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol);
    reach_print(&a->addr, s->refused);
    return CURL_SOCKET_BAD;
}

static size_t take(char *data, size_t one, size_t n, void *arg)
{
    struct sending *s = arg;

    (void)data;
    s->got += one * n;
    s->cut = s->got > POST_ANSWER_MAX;
    return s->cut ? 0 : one * n;
}

static size_t give(char *to, size_t one, size_t n, void *arg)
{
    struct sending *s = arg;
    size_t left = s->len - s->at, now = left < one * n ? left : one * n;

    memcpy(to, s->body + s->at, now);
    s->at += now;
    return now;
}

/* --- one message ----------------------------------------------------------------------------------------------- */

static bool add(struct curl_slist **list, const char *line)
{
    struct curl_slist *longer = curl_slist_append(*list, line);

    if (longer)
        *list = longer;
    return longer;
}

static bool set_mail(struct sending *s, const struct post_message *m)
{
    CURL *e = s->easy;

    return add(&s->to, m->to) && curl_easy_setopt(e, CURLOPT_MAIL_FROM, m->from) == CURLE_OK &&
           curl_easy_setopt(e, CURLOPT_MAIL_RCPT, s->to) == CURLE_OK &&
           curl_easy_setopt(e, CURLOPT_UPLOAD, 1L) == CURLE_OK &&
           curl_easy_setopt(e, CURLOPT_READFUNCTION, give) == CURLE_OK &&
           curl_easy_setopt(e, CURLOPT_READDATA, s) == CURLE_OK;
}

static bool set_post(struct sending *s, const struct post_message *m)
{
    CURL *e = s->easy;
    bool ok = add(&s->headers, "Expect:");

    for (size_t i = 0; i < POST_HEADERS_MAX && m->headers[i]; i++)
        ok = ok && add(&s->headers, m->headers[i]);
    return ok && curl_easy_setopt(e, CURLOPT_POSTFIELDS, s->body) == CURLE_OK &&
           curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)s->len) == CURLE_OK &&
           curl_easy_setopt(e, CURLOPT_HTTPHEADER, s->headers) == CURLE_OK;
}

static bool set_options(struct sending *s, const struct post_message *m)
{
    CURL *e = s->easy;

    curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, take);
    curl_easy_setopt(e, CURLOPT_WRITEDATA, s);
    curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, take);
    curl_easy_setopt(e, CURLOPT_HEADERDATA, s);
    curl_easy_setopt(e, CURLOPT_PRIVATE, s);
    curl_easy_setopt(e, CURLOPT_ERRORBUFFER, s->why);
    curl_easy_setopt(e, CURLOPT_TIMEOUT_MS, (long)POST_WAIT_MS);
    curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(e, CURLOPT_QUICK_EXIT, 1L); /* a name server that does not answer holds nobody up */
    curl_easy_setopt(e, CURLOPT_NOPROXY, "*");   /* a proxy would call any address */
    curl_easy_setopt(e, CURLOPT_USERAGENT, "muster/" MUSTER_VERSION);
    curl_easy_setopt(e, CURLOPT_OPENSOCKETFUNCTION, open_socket);
    curl_easy_setopt(e, CURLOPT_OPENSOCKETDATA, s);
    if (!s->trusted) { /* never a connection that was made for somebody who may call more addresses */
        curl_easy_setopt(e, CURLOPT_FRESH_CONNECT, 1L);
        curl_easy_setopt(e, CURLOPT_FORBID_REUSE, 1L);
    }
    return curl_easy_setopt(e, CURLOPT_URL, m->url) == CURLE_OK &&
           curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, s->mail ? "smtp" : "http,https") == CURLE_OK &&
           (s->mail ? set_mail(s, m) : set_post(s, m));
}

static struct sending *sending_new(struct post *p, const struct post_message *m)
{
    struct sending *s = calloc(1, sizeof(*s));

    if (!s)
        return NULL;
    s->owner = p;
    s->id = m->id;
    s->trusted = m->trusted;
    s->mail = m->to != NULL;
    s->len = m->len;
    s->body = malloc(m->len + 1);
    s->easy = curl_easy_init();
    if (s->body)
        memcpy(s->body, m->body, m->len);
    if (s->body && s->easy && set_options(s, m))
        return s;
    sending_free(s);
    return NULL;
}

bool post_send(struct post *p, const struct post_message *m)
{
    struct sending *s = sending_new(p, m);
    bool taken;

    if (!s)
        return false;
    (void)pthread_mutex_lock(&p->lock);
    taken = p->n < POST_QUEUE_MAX && !p->stop;
    if (taken) {
        *p->last = s;
        p->last = &s->next;
        p->n++;
    }
    (void)pthread_mutex_unlock(&p->lock);
    if (taken)
        (void)curl_multi_wakeup(p->multi);
    else
        sending_free(s);
    return taken;
}

/* --- the thread ------------------------------------------------------------------------------------------------ */

/* It is on its way no more. */
static void leave(struct sending *s)
{
    struct sending **at = &s->owner->on_way;

    while (*at && *at != s)
        at = &(*at)->next;
    if (*at)
        *at = s->next;
    (void)curl_multi_remove_handle(s->owner->multi, s->easy);
    sending_free(s);
}

static void finish(struct sending *s, CURLcode result)
{
    struct post *p = s->owner;
    char why[POST_WHY_MAX] = "";
    long status = 0;

    (void)curl_easy_getinfo(s->easy, CURLINFO_RESPONSE_CODE, &status);
    if (s->cut) /* it has answered, and goes on talking */
        result = CURLE_OK;
    if (result != CURLE_OK && *s->refused)
        (void)snprintf(why, sizeof(why), "its address %s is not of the public Internet", s->refused);
    else if (result != CURLE_OK)
        (void)snprintf(why, sizeof(why), "%.150s", *s->why ? s->why : curl_easy_strerror(result));
    if (result != CURLE_OK && !s->mail)
        status = 0;
    if (result != CURLE_OK && s->mail && status < 400)
        status = 0;
    (void)pthread_mutex_lock(&p->lock);
    p->n--;
    (void)pthread_mutex_unlock(&p->lock);
    p->cfg.done(p->cfg.arg, s->id, (int)status, (int)((clock_mono_us() - s->began_us) / 1000), why);
    leave(s);
}

/* Begin all that wait. False: it is time to end. */
static bool begin_all(struct post *p)
{
    struct sending *s, *next;
    bool go_on;

    (void)pthread_mutex_lock(&p->lock);
    s = p->first;
    p->first = NULL;
    p->last = &p->first;
    go_on = !p->stop;
    (void)pthread_mutex_unlock(&p->lock);
    for (; s; s = next) {
        next = s->next;
        s->began_us = clock_mono_us();
        s->next = p->on_way;
        p->on_way = s;
        if (curl_multi_add_handle(p->multi, s->easy) != CURLM_OK)
            finish(s, CURLE_OUT_OF_MEMORY);
    }
    return go_on;
}

static void *serve(void *arg)
{
    struct post *p = arg;
    int running, left;
    CURLMsg *m;

    thread_begin("post", THREAD_PATIENT);
    while (begin_all(p)) {
        (void)curl_multi_perform(p->multi, &running);
        while ((m = curl_multi_info_read(p->multi, &left))) {
            struct sending *s = NULL;

            (void)curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&s);
            if (m->msg == CURLMSG_DONE)
                finish(s, m->data.result);
        }
        (void)curl_multi_poll(p->multi, NULL, 0, POLL_MS, NULL);
    }
    while (p->on_way)
        leave(p->on_way);
    return NULL;
}

int post_start(const struct post_cfg *cfg, struct post **ret, struct merr *err)
{
    struct post *p = calloc(1, sizeof(*p));
    int r;

    if (!p || curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK || !(p->multi = curl_multi_init())) {
        free(p);
        return merr_set(err, -ENOMEM, "no memory for calls");
    }
    p->cfg = *cfg;
    p->last = &p->first;
    (void)pthread_mutex_init(&p->lock, NULL);
    (void)curl_multi_setopt(p->multi, CURLMOPT_MAXCONNECTS, (long)CONNECTIONS_KEPT);
    r = -pthread_create(&p->thread, NULL, serve, p);
    if (r < 0) {
        (void)curl_multi_cleanup(p->multi);
        free(p);
        return merr_errno(err, r, "cannot start the thread that sends messages");
    }
    *ret = p;
    return 0;
}

void post_stop(struct post *p)
{
    if (!p)
        return;
    (void)pthread_mutex_lock(&p->lock);
    p->stop = true;
    (void)pthread_mutex_unlock(&p->lock);
    (void)curl_multi_wakeup(p->multi);
    (void)pthread_join(p->thread, NULL);
    (void)curl_multi_cleanup(p->multi);
    (void)pthread_mutex_destroy(&p->lock);
    free(p);
}

const char *post_check_url(const char *url, bool plain)
{
    char *user = NULL, *password = NULL;
    const char *fault = NULL;
    CURLU *u;

    for (const char *at = url; *at; at++)
        if (*at <= ' ' || *at == 0x7f || *at == '\\')
            return "has characters that a URL has not";
    if (strncmp(url, "https://", 8) != 0 && !(plain && strncmp(url, "http://", 7) == 0))
        return plain ? "is no https:// or http:// address" : "is no https:// address";
    u = curl_url();
    if (!u || curl_url_set(u, CURLUPART_URL, url, 0) != CURLUE_OK)
        fault = "is no address";
    else if (curl_url_get(u, CURLUPART_USER, &user, 0) == CURLUE_OK ||
             curl_url_get(u, CURLUPART_PASSWORD, &password, 0) == CURLUE_OK)
        fault = "names a user or a password";
    curl_free(user);
    curl_free(password);
    curl_url_cleanup(u);
    return fault;
}
