#include "api/git_source.h"

#include <errno.h>
#include <string.h>

#define URL_MAX 2000
#define REF_MAX 200
#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

static bool is_of(const char *text, size_t n, const char *letters)
{
    for (size_t i = 0; i < n; i++)
        if (!strchr(letters, text[i]))
            return false;
    return n > 0 && text[0] != '-';
}

int git_source_check_url(const char *url, struct merr *err)
{
    bool https = strncmp(url, "https://", 8) == 0, ssh = strncmp(url, "ssh://", 6) == 0;
    const char *host = url + (https ? 8 : 6), *path = https || ssh ? strchr(host, '/') : url, *at;

    for (const char *c = url; *c; c++)
        if (*c <= ' ' || *c > '~' || *c == '\\' || c - url >= URL_MAX)
            return merr_set(err, -EINVAL, "the address of a repository has printable letters of ASCII, %d at most",
                            URL_MAX);
    if (!https && !ssh)
        return url[0] == '/' || strncmp(url, "file:///", 8) == 0
                   ? 0
                   : merr_set(err, -EINVAL,
                              "'%.200s' is no repository that a job may name: want https://HOST/PATH, "
                              "ssh://USER@HOST/PATH or an absolute path that the nodes see",
                              url);
    at = path ? memchr(host, '@', (size_t)(path - host)) : NULL;
    if (at && (https || memchr(host, ':', (size_t)(at - host))))
        return merr_set(err, -EINVAL,
                        "the address of the repository has a user's name or password in it, which all would read who "
                        "may see the job: leave it out, and let git of the account that jobs run as know it");
    if (at && !is_of(host, (size_t)(at - host), LETTERS "._-"))
        return merr_set(err, -EINVAL, "the user of '%.200s' is no name", url);
    host = at ? at + 1 : host;
    return path && path[1] && is_of(host, (size_t)(path - host), LETTERS ".-:[]")
               ? 0
               : merr_set(err, -EINVAL, "'%.200s' has no host or no path that can be used", url);
}

int git_source_check_ref(const char *ref, struct merr *err)
{
    return strlen(ref) <= REF_MAX && is_of(ref, strlen(ref), LETTERS "._/@+-") && !strstr(ref, "..") &&
                   !strstr(ref, "@{")
               ? 0
               : merr_set(err, -EINVAL, "'%.200s' is no name of a branch, tag or commit", ref);
}

bool git_source_is_commit(const char *commit)
{
    size_t n = strlen(commit);

    return (n == 40 || n == 64) && strspn(commit, "0123456789abcdef") == n;
}
