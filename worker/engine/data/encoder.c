#include "worker/engine/data/encoder.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

/* The words for a tokenizer that does not go with the model. 0 when it does. */
static int check_tokenizer(const struct tokenizer *t, int vocab, const char *path, struct merr *err)
{
    if (tokenizer_vocab(t) > vocab)
        return merr_set(err, -EINVAL,
                        "the tokenizer '%s' has %d tokens and the model a vocabulary of %d; set model.vocab to at "
                        "least %d, or name the model's own tokenizer",
                        path, tokenizer_vocab(t), vocab, tokenizer_vocab(t));
    if (tokenizer_end(t) < 0)
        return merr_set(err, -EINVAL,
                        "the tokenizer '%s' names no end of a document; put a tokenizer_config.json with "
                        "its eos_token beside it",
                        path);
    return 0;
}

int encoder_open(const struct job_spec *spec, struct encoder *ret, struct merr *err)
{
    const char *path = spec->train.data.tokenizer_path;
    int vocab = spec->train.model.vocab, rc;
    struct tokenizer *t;

    if (spec->train.data.tokenizer == TOKENIZER_BYTES) {
        if (vocab < 256)
            return merr_set(err, -EINVAL, "model.vocab is %d, but text as bytes needs at least 256; raise model.vocab",
                            vocab);
        *ret = (struct encoder){.end = vocab > 256 ? 256 : 0};
        return 0;
    }
    if (!path)
        return merr_set(err, -EINVAL, "train.data.tokenizer_path names no tokenizer; give its folder or file");
    rc = tokenizer_open(path, &t, err);
    if (rc < 0)
        return rc;
    rc = check_tokenizer(t, vocab, path, err);
    if (rc < 0) {
        tokenizer_free(t);
        return rc;
    }
    *ret = (struct encoder){t, tokenizer_end(t)};
    return 0;
}

void encoder_clear(struct encoder *e)
{
    tokenizer_free(e->tokenizer);
    e->tokenizer = NULL;
}

int encoder_add(const struct encoder *e, const char *text, size_t len, struct buf *out, struct merr *err)
{
    int32_t *to;
    int rc;

    if (e->tokenizer) {
        rc = tokenizer_encode(e->tokenizer, text, len, out, err);
        return rc == -EILSEQ ? -EINVAL : rc;
    }
    to = (int32_t *)(void *)buf_reserve(out, len * sizeof(*to));
    if (!to)
        return merr_set(err, -ENOMEM, "no memory for %zu tokens", len);
    for (size_t i = 0; i < len; i++)
        to[i] = (unsigned char)text[i];
    buf_commit(out, len * sizeof(*to));
    return 0;
}
