#include "base/pattern.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/try.h"
#include "base/utf8.h"

#define WORDS (PATTERN_PLACES / 64)
#define SYMBOLS 258 /* bytes, and: */
#define LINE_BEGIN 256
#define LINE_END 257
#define DEPTH_MAX 32
#define PARSED_MAX 8192 /* items read; what is repeated is read as often */

struct places {
    uint64_t w[WORDS];
};

struct pattern {
    struct places first, last;            /* where a match begins, and may end */
    struct places follow[PATTERN_PLACES]; /* what may come behind a place */
    struct places takes[SYMBOLS];         /* the places that take a symbol */
    struct places begins[SYMBOLS];        /* those of them where a match begins */
    bool starts[SYMBOLS];                 /* whether there are any */
    bool empty;                           /* matches everywhere */
};

struct part { /* of a pattern */
    struct places first, last;
    bool empty; /* may take nothing */
};

struct parser {
    const char *text, *at;
    struct pattern *p;
    int n; /* places so far */
    int parsed, depth;
    bool either_case;
    struct merr *err;
};

/* --- sets -------------------------------------------------------------------------------------------- */

static void join(struct places *to, const struct places *more)
{
    for (int i = 0; i < WORDS; i++)
        to->w[i] |= more->w[i];
}

static void add(struct places *to, int place)
{
    to->w[place / 64] |= UINT64_C(1) << (place % 64);
}

static bool meet(const struct places *a, const struct places *b)
{
    uint64_t any = 0;

    for (int i = 0; i < WORDS; i++)
        any |= a->w[i] & b->w[i];
    return any != 0;
}

/* Whatever ends in a may go on with b. */
static void follow(struct pattern *p, const struct places *a, const struct places *b)
{
    for (int i = 0; i < WORDS; i++)
        for (uint64_t w = a->w[i]; w; w &= w - 1)
            join(&p->follow[i * 64 + __builtin_ctzll(w)], b);
}

/* --- reading a pattern ------------------------------------------------------------------------------- */

static int refuse(const struct parser *s, const char *why)
{
    return merr_set(s->err, -EINVAL, "%s, at character %d of the pattern", why, (int)(s->at - s->text) + 1);
}

/* The number of one more place. */
static int add_place(struct parser *s)
{
    if (s->n == PATTERN_PLACES)
        return merr_set(s->err, -EINVAL, "it asks for more than %d characters, repeated ones counted", PATTERN_PLACES);
    return s->n++;
}

/* A part that takes one symbol. */
static int one(struct parser *s, int symbol, struct part *ret)
{
    int place = add_place(s);

    if (place < 0)
        return place;
    add(&s->p->takes[symbol], place);
    if (s->either_case && symbol < 128 && isalpha(symbol))
        add(&s->p->takes[symbol ^ 0x20], place);
    *ret = (struct part){.empty = false};
    add(&ret->first, place);
    ret->last = ret->first;
    return 0;
}

static void then(struct parser *s, struct part *a, const struct part *b)
{
    follow(s->p, &a->last, &b->first);
    if (a->empty)
        join(&a->first, &b->first);
    if (b->empty)
        join(&a->last, &b->last);
    else
        a->last = b->last;
    a->empty = a->empty && b->empty;
}

/* One character of those below 128 that are marked, and with wide any other: its first byte, and those behind it. */
static int one_of(struct parser *s, const bool *ascii, bool wide, struct part *ret)
{
    int head = add_place(s), rest;

    if (head < 0)
        return head;
    *ret = (struct part){.empty = false};
    add(&ret->first, head);
    for (int c = 0; c < 128; c++)
        if (ascii[c] || (s->either_case && isalpha(c) && ascii[c ^ 0x20]))
            add(&s->p->takes[c], head);
    ret->last = ret->first;
    if (!wide)
        return 0;
    rest = add_place(s);
    if (rest < 0)
        return rest;
    for (int c = 128; c < 256; c++)
        add(&s->p->takes[c], (c & 0xC0) == 0x80 ? rest : head);
    add(&ret->last, rest);
    add(&s->p->follow[head], rest);
    add(&s->p->follow[rest], rest);
    return 0;
}

static bool is_word(int c)
{
    return isalnum(c) || c == '_';
}

/* Mark what d, w or s stands for; whether the letter is one of them. */
static bool mark_kind(char kind, bool *ascii)
{
    for (int c = 0; c < 128; c++)
        ascii[c] |= kind == 'd' ? isdigit(c) != 0 : kind == 'w' ? is_word(c) : kind == 's' && isspace(c) != 0;
    return strchr("dws", kind) != NULL;
}

static int escaped(struct parser *s, struct part *ret)
{
    char c = *s->at;
    bool ascii[128] = {false}, not_those;

    if (c == 't') {
        s->at++;
        return one(s, '\t', ret);
    }
    if (!c || (unsigned char)c >= 128 || isdigit(c) || (isalpha(c) && !strchr("dwsDWS", c)))
        return refuse(s, "a backslash stands before d, w, s, D, W, S, t or a sign");
    s->at++;
    if (!isalpha(c))
        return one(s, (unsigned char)c, ret);
    not_those = isupper(c) != 0;
    (void)mark_kind((char)tolower(c), ascii);
    for (int i = 0; not_those && i < 128; i++)
        ascii[i] = !ascii[i];
    return one_of(s, ascii, not_those, ret);
}

/* "[:digit:]" within brackets. */
static int named_set(struct parser *s, bool *ascii)
{
    static const struct {
        const char *name;
        int (*has)(int);
    } set[] = {{"alnum", isalnum}, {"alpha", isalpha}, {"blank", isblank}, {"cntrl", iscntrl},
               {"digit", isdigit}, {"graph", isgraph}, {"lower", islower}, {"print", isprint},
               {"punct", ispunct}, {"space", isspace}, {"upper", isupper}, {"xdigit", isxdigit}};
    const char *name = s->at + 2;

    for (size_t i = 0; i < sizeof(set) / sizeof(set[0]); i++) {
        size_t n = strlen(set[i].name);

        if (strncmp(name, set[i].name, n) != 0 || strncmp(name + n, ":]", 2) != 0)
            continue;
        for (int c = 0; c < 128; c++)
            ascii[c] |= set[i].has(c) != 0;
        s->at = name + n + 2;
        return 0;
    }
    return refuse(s, "no such set; there are such as [:digit:], [:alpha:], [:space:]");
}

/* Behind "[". */
static int bracket(struct parser *s, struct part *ret)
{
    bool ascii[128] = {false}, not_those = *s->at == '^', begun = false;

    s->at += not_those;
    for (; *s->at && (*s->at != ']' || !begun); begun = true) {
        unsigned char from = (unsigned char)*s->at, to;

        if (s->at[0] == '[' && s->at[1] == ':') {
            TRY(named_set(s, ascii));
            continue;
        }
        if (from == '\\' && s->at[1] && mark_kind(s->at[1], ascii)) {
            s->at += 2;
            continue;
        }
        if (from == '\\' && s->at[1])
            from = (unsigned char)*++s->at;
        to = from;
        s->at++;
        if (s->at[0] == '-' && s->at[1] && s->at[1] != ']') {
            to = (unsigned char)s->at[1];
            s->at += 2;
        }
        if (from >= 128 || to >= 128 || to < from)
            return refuse(s, "within [ ] stand characters of ASCII, and ranges that rise");
        for (int c = from; c <= to; c++)
            ascii[c] = true;
    }
    if (*s->at != ']')
        return refuse(s, "a [ has no ]");
    s->at++;
    if (s->either_case)
        for (int c = 'a'; c <= 'z'; c++)
            ascii[c] = ascii[c ^ 0x20] = ascii[c] || ascii[c ^ 0x20];
    for (int c = 0; not_those && c < 128; c++)
        ascii[c] = !ascii[c];
    return one_of(s, ascii, not_those, ret);
}

static int alternatives(struct parser *s, struct part *ret);

/* One character, set or group. */
static int item(struct parser *s, struct part *ret)
{
    char c = *s->at;
    bool any[128];
    int n;

    if (++s->parsed > PARSED_MAX)
        return merr_set(s->err, -EINVAL, "its repetitions are too many");
    if (strchr("*+?{", c))
        return refuse(s, "there is nothing before it to repeat");
    s->at++;
    switch (c) {
    case '.':
        memset(any, true, sizeof(any));
        return one_of(s, any, true, ret);
    case '^':
        return one(s, LINE_BEGIN, ret);
    case '$':
        return one(s, LINE_END, ret);
    case '[':
        return bracket(s, ret);
    case '\\':
        return escaped(s, ret);
    case '(':
        if (++s->depth > DEPTH_MAX)
            return refuse(s, "groups lie too deep in each other");
        TRY(alternatives(s, ret));
        s->depth--;
        if (*s->at != ')')
            return refuse(s, "a ( has no )");
        s->at++;
        return 0;
    default:
        break;
    }
    n = utf8_length(s->at - 1, strlen(s->at - 1));
    TRY(one(s, (unsigned char)c, ret));
    for (; n > 1; n--) { /* a whole character is one item */
        struct part more;

        TRY(one(s, (unsigned char)*s->at++, &more));
        then(s, ret, &more);
    }
    return 0;
}

/* "{2}", "{2,}", "{2,5}"; *most is -1 without a limit. */
static int counts(struct parser *s, int *least, int *most)
{
    int v[2] = {-1, -1}, n = 0;

    for (s->at++; *s->at && *s->at != '}'; s->at++) {
        if (*s->at == ',' && n == 0 && v[0] >= 0)
            n = 1;
        else if (isdigit(*s->at) && v[n] < PATTERN_PLACES)
            v[n] = (v[n] < 0 ? 0 : v[n] * 10) + (*s->at - '0');
        else
            break;
    }
    if (*s->at != '}' || v[0] < 0 || (n == 1 && v[1] >= 0 && v[1] < v[0]) || v[0] > PATTERN_PLACES ||
        v[1] > PATTERN_PLACES)
        return refuse(s, "want such as {2}, {2,} or {2,5}");
    s->at++;
    *least = v[0];
    *most = n == 0 ? v[0] : v[1];
    return 0;
}

/* An item and how often it comes: what comes several times is read again for each, as places of its own. */
static int repeated(struct parser *s, struct part *ret)
{
    const char *begin = s->at, *end;
    int least = 1, most = 1;
    struct part again;

    TRY(item(s, ret));
    if (!*s->at || !strchr("*+?{", *s->at))
        return 0;
    if (*s->at == '{') {
        TRY(counts(s, &least, &most));
    } else {
        least = *s->at == '+';
        most = *s->at == '?' ? 1 : -1;
        s->at++;
    }
    end = s->at;
    if (*end && strchr("*+?{", *end))
        return refuse(s, "what is repeated is put in ( ) before it is repeated again");
    again = *ret;
    for (int i = 1; i < (most < 0 ? least : most); i++) {
        s->at = begin;
        TRY(item(s, &again));
        again.empty = again.empty || i >= least;
        then(s, ret, &again);
    }
    s->at = end;
    if (most < 0)
        follow(s->p, &again.last, &again.first);
    ret->empty = ret->empty || least == 0;
    if (most == 0) /* nothing leads to its places */
        *ret = (struct part){.empty = true};
    return 0;
}

static int sequence(struct parser *s, struct part *ret)
{
    *ret = (struct part){.empty = true};
    while (*s->at && *s->at != '|' && *s->at != ')') {
        struct part next;

        TRY(repeated(s, &next));
        then(s, ret, &next);
    }
    return 0;
}

static int alternatives(struct parser *s, struct part *ret)
{
    TRY(sequence(s, ret));
    while (*s->at == '|') {
        struct part other;

        s->at++;
        TRY(sequence(s, &other));
        join(&ret->first, &other.first);
        join(&ret->last, &other.last);
        ret->empty = ret->empty || other.empty;
    }
    return 0;
}

static int read_pattern(struct parser *s, struct part *ret)
{
    TRY(alternatives(s, ret));
    return *s->at ? refuse(s, "a ) has no (") : 0;
}

int pattern_new(const char *text, struct pattern **ret, struct merr *err)
{
    bool either = strncmp(text, "(?i)", 4) == 0;
    struct parser s = {.text = text, .at = text + (either ? 4 : 0), .either_case = either, .err = err};
    struct part whole;
    int r;

    if (!*text || strlen(text) > PATTERN_TEXT_MAX)
        return merr_set(err, -EINVAL, "want 1 to %d characters", PATTERN_TEXT_MAX);
    s.p = calloc(1, sizeof(*s.p));
    if (!s.p)
        return merr_set(err, -ENOMEM, "no memory");
    r = read_pattern(&s, &whole);
    if (r < 0) {
        pattern_free(s.p);
        return r;
    }
    s.p->last = whole.last;
    s.p->empty = whole.empty;
    for (int c = 0; c < SYMBOLS; c++)
        for (int i = 0; i < WORDS; i++) {
            s.p->begins[c].w[i] = whole.first.w[i] & s.p->takes[c].w[i];
            s.p->starts[c] |= s.p->begins[c].w[i] != 0;
        }
    *ret = s.p;
    return 0;
}

void pattern_free(struct pattern *p)
{
    free(p);
}

/* --- matching ---------------------------------------------------------------------------------------- */

/* The places at which all ways to match are after one more symbol; *at has those before. Returns how many it had. */
static int move_on(const struct pattern *p, struct places *at, int symbol)
{
    struct places next = {{0}};
    int n = 0;

    for (int i = 0; i < WORDS; i++)
        for (uint64_t w = at->w[i]; w; w &= w - 1, n++)
            join(&next, &p->follow[i * 64 + __builtin_ctzll(w)]);
    for (int i = 0; i < WORDS; i++)
        at->w[i] = (next.w[i] & p->takes[symbol].w[i]) | p->begins[symbol].w[i];
    return n;
}

bool pattern_finds(const struct pattern *p, const char *line, size_t len, uint64_t *moves)
{
    struct places at = p->begins[LINE_BEGIN];
    bool any = p->starts[LINE_BEGIN], found = p->empty || meet(&at, &p->last);
    uint64_t n = 0;

    for (size_t i = 0; i <= len && !found; i++) {
        int c = i < len ? (unsigned char)line[i] : LINE_END;

        if (!any && !p->starts[c]) /* most bytes */
            continue;
        n += (uint64_t)move_on(p, &at, c);
        any = meet(&at, &at);
        found = any && meet(&at, &p->last);
    }
    if (moves)
        *moves += n;
    return found;
}
