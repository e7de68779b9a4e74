/* webhook_text - what a delivery says, in each format, and how it is signed
 *
 * The signature is that of Standard Webhooks. Text of others is cut, and acts on nothing where it is shown. Pure.
 */
#ifndef MUSTER_SERVER_WEBHOOK_TEXT_H
#define MUSTER_SERVER_WEBHOOK_TEXT_H

#include "server/control/webhook.h"

struct webhook_news { /* what a notice tells */
    int kind;
    const char *at, *job, *name, *user, *project, *node, *code, *class_, *text; /* borrowed; NULL: none */
    uint64_t event;
};

/* The body of a delivery in a format, new; of mail what follows its head. NULL: no memory. */
char *webhook_text(enum webhook_format format, const struct webhook_news *n);

/* A whole mail, new. wall_us: of its Date. */
char *webhook_mail(const char *from, const char *to, const char *id, int64_t wall_us, const char *body);

/* "v1,<base64>": HMAC-SHA256 of "<id>.<seconds>.<body>" by a secret ("whsec_<base64>"). False: that is none. */
#define WEBHOOK_SIGNATURE_MAX 64
bool webhook_sign(const char *secret, const char *id, int64_t seconds, const char *body,
                  char ret[WEBHOOK_SIGNATURE_MAX]);

/* Whether it can be a mail address, and one that mail may go to. */
bool webhook_address_ok(const char *address, const char *domains);

#endif
