/* The first byte chooses format and separator, the rest is the file: split at once, and found piece by piece through a
 * window that grows, as a file is read. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "worker/engine/data/corpus.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Documents that say something, found when `step` more bytes are seen at a time. */
static size_t find_all(const struct corpus_form *form, const char *data, size_t size, size_t step)
{
    struct corpus_piece p;
    size_t n = 0;

    for (size_t at = 0, seen = 0; at < size;) {
        seen = seen + step < size ? seen + step : size;
        while (at < seen && corpus_find(form, data + at, seen - at, seen == size, &p)) {
            assert(p.begin < p.end && p.end <= p.next && p.next <= seen - at && p.line < p.lines);
            n++;
            at += p.next;
        }
        if (seen == size)
            break;
    }
    return n;
}

static void read_prompts(const struct corpus_form *form, const char *data, size_t size)
{
    struct corpus_text t;
    struct merr err;

    if (corpus_read(form, true, data, size, 1, &t, &err) < 0)
        return;
    assert(t.text && (t.prompt || t.prompt_len == 0) && t.text_len + t.prompt_len <= size);
    corpus_text_clear(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct corpus_form form = {.name = "fuzz"};
    const char *text = (const char *)data + 1;
    struct documents docs;
    struct merr err;
    size_t begin = 0;

    if (size == 0)
        return 0;
    form.format = data[0] & 4 ? DATA_JSONL : DATA_TEXT;
    form.separator = (enum data_separator)(data[0] % 3);
    assert(find_all(&form, text, size - 1, 1 + data[0] / 8) == find_all(&form, text, size - 1, size));
    read_prompts(&form, text, size - 1);
    if (documents_split(&form, text, size - 1, &docs, &err) < 0)
        return 0;
    for (size_t i = 0; i < docs.n; begin = docs.end[i++])
        assert(docs.end[i] > begin);
    assert(begin == docs.text_len && docs.text_len < size);
    documents_clear(&docs);
    return 0;
}
