#include "server/http/http_peer.h"

#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <stdio.h>
#include <string.h>

static void read_name(gnutls_x509_crt_t x, const char *oid, char *ret, size_t size)
{
    if (gnutls_x509_crt_get_dn_by_oid(x, oid, 0, 0, ret, &size) != 0)
        *ret = '\0';
}

/* What the certificate of the connection says, if our authority has signed it for a client. */
static void look(gnutls_session_t session, int64_t wall_us, struct http_peer *p)
{
    gnutls_typed_vdata_st purpose = {.type = GNUTLS_DT_KEY_PURPOSE_OID,
                                     .data = (unsigned char *)(intptr_t)GNUTLS_KP_TLS_WWW_CLIENT};
    unsigned n = 0, status = 0;
    const gnutls_datum_t *chain = gnutls_certificate_get_peers(session, &n);
    gnutls_x509_crt_t x = NULL;

    p->seen = true;
    p->shown = chain && n > 0;
    if (!p->shown || gnutls_certificate_verify_peers(session, &purpose, 1, &status) != 0)
        return;
    if (status != 0 && status != (GNUTLS_CERT_EXPIRED | GNUTLS_CERT_INVALID)) /* of what has expired the node is told */
        return;
    if (gnutls_x509_crt_init(&x) == 0 && gnutls_x509_crt_import(x, &chain[0], GNUTLS_X509_FMT_DER) == 0) {
        read_name(x, GNUTLS_OID_X520_COMMON_NAME, p->node, sizeof(p->node));
        read_name(x, GNUTLS_OID_X520_ORGANIZATIONAL_UNIT_NAME, p->token, sizeof(p->token));
        p->until_us = (int64_t)gnutls_x509_crt_get_expiration_time(x) * 1000000;
    }
    gnutls_x509_crt_deinit(x);
    if (status != 0 && p->until_us > wall_us)
        *p->node = '\0'; /* it is the authority that has expired */
}

const char *http_peer_fault(struct http_req *r, struct http_conn *c, int64_t wall_us, char *why, size_t size)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(r->conn, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    const struct http_identity *who = &r->identity;
    const char *code = "certificate-needed";

    if (c && !c->peer.seen && info && info->tls_session)
        look(info->tls_session, wall_us, &c->peer);
    if (!c || !c->peer.shown)
        (void)snprintf(why, size,
                       "this server takes agents with a certificate of their node alone; the agent gets one when it "
                       "trades a code of `muster node enroll %s`",
                       *who->node ? who->node : "NAME");
    else if (!*c->peer.node) {
        code = "certificate-unknown";
        (void)snprintf(why, size, "this server's authority of nodes has not signed the certificate");
    } else if (wall_us >= c->peer.until_us) {
        code = "certificate-expired";
        (void)snprintf(why, size, "the certificate of node '%s' has expired; `muster node enroll %s` prints a code",
                       c->peer.node, c->peer.node);
    } else if (strcmp(c->peer.node, who->node) != 0 || strcmp(c->peer.token, who->token) != 0) {
        code = "certificate-other";
        (void)snprintf(why, size, "the certificate is of node '%s' and another token than this one, of node '%s'",
                       c->peer.node, who->node);
    } else
        return NULL;
    return code;
}
