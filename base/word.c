#include "base/word.h"

#include <string.h>

#define WORD_MAX 40 /* longer words are not guessed at */

/* Insertions, deletions, replacements and swaps of neighbours that make b of a. */
static size_t distance(const char *a, size_t n, const char *b, size_t m)
{
    size_t row[3][WORD_MAX + 1], *before = row[0], *last = row[1], *now = row[2];

    for (size_t j = 0; j <= m; j++)
        before[j] = 0, last[j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t *spare = before;

        now[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t best = last[j - 1] + (a[i - 1] != b[j - 1]);

            if (last[j] + 1 < best)
                best = last[j] + 1;
            if (now[j - 1] + 1 < best)
                best = now[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && before[j - 2] + 1 < best)
                best = before[j - 2] + 1;
            now[j] = best;
        }
        before = last;
        last = now;
        now = spare;
    }
    return last[m];
}

const char *word_nearest(const char *word, const char *const *known, size_t n)
{
    size_t len = strlen(word), best = len < 4 ? 2 : len < 8 ? 3 : 4; /* fewer changes than this */
    const char *found = NULL;

    if (len > WORD_MAX)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        size_t d = strlen(known[i]) > WORD_MAX ? best : distance(word, len, known[i], strlen(known[i]));

        if (d < best && d < strlen(known[i])) {
            best = d;
            found = known[i];
        }
    }
    return found;
}

int word_index(const char *word, const char *const *words)
{
    for (int i = 0; words[i]; i++)
        if (strcmp(words[i], word) == 0)
            return i;
    return -1;
}

void word_list(const char *const *words, const char *before_last, struct buf *b)
{
    for (size_t i = 0; words[i]; i++)
        (void)buf_printf(b, "%s%s", i == 0 ? "" : words[i + 1] ? ", " : before_last, words[i]);
}
