#include "api/cli/ignore.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "base/try.h"

/* One line of len bytes. */
static int add_line(struct ignore *all, const char *line, size_t len, size_t base)
{
    struct ignore_rule r = {.base = base};
    char *text;

    while (len > 0 && line[len - 1] == ' ' && !(len > 1 && line[len - 2] == '\\'))
        len--;
    if (len == 0 || line[0] == '#')
        return 0;
    if (line[0] == '!') {
        r.keeps = true;
        line++;
        len--;
    }
    if (len > 0 && line[len - 1] == '/') {
        r.folders = true;
        len--;
    }
    r.anchored = memchr(line, '/', len);
    if (len > 0 && line[0] == '/') {
        line++;
        len--;
    }
    if (len == 0)
        return 0;
    if (all->n == IGNORE_RULES_MAX)
        return -E2BIG;
    text = r.text = strndup(line, len);
    if (!text)
        return -ENOMEM;
    for (r.n = 1; (text = strchr(text, '/')); r.n++)
        *text++ = '\0';
    if (r.n > IGNORE_PARTS_MAX) {
        free(r.text);
        return -E2BIG;
    }
    all->v[all->n++] = r;
    return 0;
}

int ignore_add(struct ignore *all, const char *text, size_t base)
{
    for (size_t n; *text; text += n + (text[n] == '\n')) {
        n = strcspn(text, "\n");
        TRY(add_line(all, text, n, base));
    }
    return 0;
}

void ignore_cut(struct ignore *all, size_t n)
{
    while (all->n > n)
        free(all->v[--all->n].text);
}

/* Parts of a rule against parts of a path. */
static bool fits(const char *const *rule, size_t n, const char *const *path, size_t m)
{
    if (n == 0)
        return m == 0;
    if (strcmp(rule[0], "**") == 0) {
        if (n == 1)
            return m > 0; /* all that is below */
        for (size_t skip = 0; skip <= m; skip++)
            if (fits(rule + 1, n - 1, path + skip, m - skip))
                return true;
        return false;
    }
    return m > 0 && fnmatch(rule[0], path[0], 0) == 0 && fits(rule + 1, n - 1, path + 1, m - 1);
}

static bool is_for(const struct ignore_rule *r, const char *const *path, size_t m)
{
    const char *rule[IGNORE_PARTS_MAX], *at = r->text;

    if (!r->anchored)
        return fnmatch(r->text, path[m - 1], 0) == 0;
    for (size_t i = 0; i < r->n; i++, at += strlen(at) + 1)
        rule[i] = at;
    return fits(rule, r->n, path, m);
}

bool ignore_hides(const struct ignore *all, const char *path, bool folder)
{
    for (size_t i = all->n; i-- > 0;) {
        const struct ignore_rule *r = &all->v[i];
        const char *part[IGNORE_PARTS_MAX];
        char *parts, *at;
        size_t m = 1;
        bool is;

        if (r->folders && !folder)
            continue;
        at = parts = strdup(path + r->base);
        if (!parts)
            return false;
        for (part[0] = at; (at = strchr(at, '/')) && m < IGNORE_PARTS_MAX; m++) {
            *at++ = '\0';
            part[m] = at;
        }
        is = is_for(r, part, m);
        free(parts);
        if (is)
            return !r->keeps;
    }
    return false;
}
