#include "server/control/agent_rights.h"

#include <openssl/crypto.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum agent_verdict agent_may_speak(const struct agent_ask *ask)
{
    if (*ask->bound)
        return strcmp(ask->bound, ask->node) == 0 ? AGENT_MAY : AGENT_OTHER_NODE;
    return !ask->shared ? AGENT_NOT_SHARED : ask->enrolled ? AGENT_ENROLLED : AGENT_MAY;
}

bool agent_is_registered(const char *told, const char *registered)
{
    return told && *told && strcmp(told, registered) == 0;
}

/* The node of a rank, or of a source node; NULL: there is none. */
static const char *node_of_rank(const struct job *j, size_t rank)
{
    if (rank < j->n_places)
        return j->places[rank].node;
    return rank - j->n_places < j->n_holders ? j->holders[rank - j->n_places].node : NULL;
}

/* The i-th node of the run, in the order of their first ranks; NULL: there are fewer. */
static const char *node_at(const struct job *j, size_t i)
{
    for (size_t rank = 0; rank < j->n_places; rank++) {
        size_t before = 0;

        while (before < rank && strcmp(j->places[before].node, j->places[rank].node) != 0)
            before++;
        if (before == rank && i-- == 0)
            return j->places[rank].node;
    }
    return NULL;
}

bool agent_has_part(const struct job *j, const char *node)
{
    const char *one;

    for (size_t rank = 0; (one = node_of_rank(j, rank)); rank++)
        if (strcmp(one, node) == 0)
            return true;
    return false;
}

bool agent_may_put_key(const struct job *j, const char *node, const char *key)
{
    const char *dash = strrchr(key, '-'), *digits = dash ? dash + 1 : "", *owner;
    size_t n = strspn(digits, "0123456789"), number;

    if (n == 0 || n > 6 || digits[n] || (n > 1 && *digits == '0'))
        return false;
    number = strtoul(digits, NULL, 10);
    owner = strncmp(key, "guard.", 6) == 0 ? node_at(j, number) : node_of_rank(j, number);
    return owner && strcmp(owner, node) == 0;
}

void agent_prove(const char *key, uint64_t job, uint64_t generation, const char *node, char ret[PROTOCOL_PROOF_MAX])
{
    unsigned char mac[EVP_MAX_MD_SIZE];
    unsigned int n = 0;
    char text[128];
    int len =
        snprintf(text, sizeof(text), "j%llu %llu %.63s", (unsigned long long)job, (unsigned long long)generation, node);

    if (!HMAC(EVP_sha256(), key, (int)strlen(key), (const unsigned char *)text, (size_t)len, mac, &n))
        n = 0; /* a proof of nothing */
    for (unsigned int i = 0; i < n; i++)
        (void)snprintf(ret + 2 * (size_t)i, 3, "%02x", mac[i]);
    ret[2 * (size_t)n] = '\0';
}

bool agent_has_proof(const char *key, uint64_t job, uint64_t generation, const char *node, const char *proof)
{
    char own[PROTOCOL_PROOF_MAX];

    agent_prove(key, job, generation, node, own);
    return *own && proof && strlen(proof) == strlen(own) && CRYPTO_memcmp(own, proof, strlen(own)) == 0;
}

enum agent_join agent_may_join(const struct agent_code *code, const char *token_hash, int64_t wall_us)
{
    if (!code)
        return AGENT_CODE_UNKNOWN;
    if (wall_us >= code->expires_us)
        return AGENT_CODE_OVER;
    if (!*code->used_by)
        return AGENT_JOINS;
    return strcmp(code->used_by, token_hash) == 0 ? AGENT_JOINED : AGENT_CODE_USED;
}
