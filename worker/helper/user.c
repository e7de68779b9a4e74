/* Who a rank may be, and how a process becomes that and nothing more. */
#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "worker/helper/helper.h"

#define GROUPS_MAX 256
#define NOBODY 65534 /* whose files are nobody's in particular */

/* Where people's accounts begin. */
static unsigned long first_of_people(void)
{
    FILE *f = fopen("/etc/login.defs", "re");
    unsigned long value = 1000, read;
    char line[256];

    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, " UID_MIN %lu", &read) == 1 && read > 0)
            value = read;
    if (f)
        (void)fclose(f);
    return value;
}

bool user_find(const struct helper *h, const char *name, struct helper_user *ret, char text[200])
{
    const struct passwd *p = getpwnam(*name ? name : h->job.name);
    unsigned long from = first_of_people();

    if (!p)
        (void)snprintf(text, 200, "there is no user '%s' on this node", *name ? name : h->job.name);
    else if (p->pw_uid == 0 || p->pw_gid == 0 || p->pw_uid == h->agent.uid || p->pw_gid == h->agent.gid)
        (void)snprintf(text, 200, "no rank runs as '%s': it is root's, or Muster's own account", p->pw_name);
    else if ((p->pw_uid < from && p->pw_uid != h->job.uid) || p->pw_uid == NOBODY || p->pw_uid == (uid_t)-1)
        (void)snprintf(text, 200, "no rank runs as '%s': it is a system's account (user id %u; people's begin at %lu)",
                       p->pw_name, (unsigned)p->pw_uid, from);
    else {
        *ret = (struct helper_user){.uid = p->pw_uid, .gid = p->pw_gid};
        (void)snprintf(ret->name, sizeof(ret->name), "%s", p->pw_name);
        return true;
    }
    return false;
}

/* Groups of people are kept, and those of devices; others open what is the system's. */
static bool is_kept(const struct helper *h, gid_t gid, unsigned long from)
{
    const struct group *g = getgrgid(gid);
    char word[64];

    (void)snprintf(word, sizeof(word), " %s ", g ? g->gr_name : "?");
    if (strstr(" sudo wheel docker lxd incus libvirt disk kvm ", word))
        return false;
    return strstr(" video render ", word) || (gid >= from && gid != h->agent.gid && gid != NOBODY);
}

bool user_keep_capabilities(uint64_t bits, uint64_t bound)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{.effective = (uint32_t)bits, .permitted = (uint32_t)bits}}; /* low ones */

    for (unsigned long c = 0; prctl(PR_CAPBSET_READ, c, 0, 0, 0) >= 0; c++)
        if (!(c < 64 && bound >> c & 1) && prctl(PR_CAPBSET_READ, c, 0, 0, 0) > 0 &&
            prctl(PR_CAPBSET_DROP, c, 0, 0, 0) < 0)
            return false;
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) == 0 && syscall(SYS_capset, &head, data) == 0;
}

bool user_become(const struct helper *h, const struct helper_user *u)
{
    unsigned long from = first_of_people();
    gid_t all[GROUPS_MAX], kept[GROUPS_MAX];
    int n = GROUPS_MAX, k = 0;

    if (getgrouplist(u->name, u->gid, all, &n) < 0)
        return errno = E2BIG, false;
    for (int i = 0; i < n; i++)
        if (u->uid == h->agent.uid || is_kept(h, all[i], from))
            kept[k++] = all[i];
    if (setgroups((size_t)k, kept) < 0 || setresgid(u->gid, u->gid, u->gid) < 0 ||
        !user_keep_capabilities(1 << CAP_SETUID, 0) || /* the bounding set goes while there is a right to drop it */
        setresuid(u->uid, u->uid, u->uid) < 0 || !user_keep_capabilities(0, 0))
        return false;
    if (setuid(0) == 0 || setgid(0) == 0)
        abort(); /* it must not be root any more */
    return true;
}
