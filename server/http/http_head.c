#include "server/http/http_head.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

/* libmicrohttpd 0.9.75 lets a line end with CR, LF or CR LF, and a value with a NUL. It reads in place and puts a NUL
 * over each CR and LF that ends a line, so that the next line begins two bytes behind the end of the last value unless
 * one of these was there. A later libmicrohttpd, which is asked to be strict, refuses them itself, and may keep its
 * lines otherwise. */
static bool reads_in_place(void)
{
    return strcmp(MHD_get_version(), "0.9.75") == 0;
}

struct look {
    bool in_place;
    const char *next; /* where the next line begins if the last one ended with CR LF */
    int lengths, codings, hosts, tokens;
    const char *fault;
};

static enum MHD_Result look_at(void *cls, enum MHD_ValueKind kind, const char *name, size_t name_len, const char *value,
                               size_t value_len)
{
    struct look *l = cls;

    (void)kind;
    if (l->in_place && name != l->next)
        l->fault = "a line of the head ends with something else than CR LF, is folded, or holds a NUL";
    l->next = value ? value + value_len + 2 : NULL;
    for (size_t i = 0; value && i < value_len; i++)
        if (((unsigned char)value[i] < 0x20 && value[i] != '\t') || value[i] == 0x7f)
            l->fault = "a header holds a control character";
    l->lengths += name_len == 14 && strncasecmp(name, "Content-Length", 14) == 0;
    l->codings += name_len == 17 && strncasecmp(name, "Transfer-Encoding", 17) == 0;
    l->hosts += name_len == 4 && strncasecmp(name, "Host", 4) == 0;
    l->tokens += name_len == 13 && strncasecmp(name, "Authorization", 13) == 0;
    return l->fault ? MHD_NO : MHD_YES;
}

const char *http_head_fault(struct MHD_Connection *conn, const char *method, size_t uri_len, const char *version)
{
    const union MHD_ConnectionInfo *size;
    struct look l = {.in_place = reads_in_place(), .next = version + strlen(version) + 2};

    if (l.in_place && version != method + strlen(method) + 1 + uri_len + 1)
        return "the request line is not METHOD URI VERSION with one space between each two";
    (void)MHD_get_connection_values_n(conn, MHD_HEADER_KIND, look_at, &l);
    if (l.fault)
        return l.fault;
    size = MHD_get_connection_info(conn, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    if (l.in_place && l.next && size && method + size->header_size != l.next + 2)
        return "the head does not end with CR LF CR LF";
    if (l.lengths > 1)
        return "there are two headers Content-Length";
    if (l.lengths && l.codings)
        return "there are both Content-Length and Transfer-Encoding";
    if (l.codings > 1 || l.hosts > 1 || l.tokens > 1)
        return "a header is there twice that may be there once";
    return NULL;
}
