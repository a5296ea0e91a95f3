#include "proc/owner.h"

#include <stdio.h>
#include <unistd.h>

#include "proc/proc.h"

#include "common/banned.h"

static bool is_owner(const struct proc *p, rlim_t mark, pid_t session)
{
    if (mark)
        return tree_mark(p->reg->instance, p->serial) == mark;
    return session > 0 && p->pid == session;
}

int owner_find(struct registry *reg, pid_t pid, char out[SPEC_ID_MAX_BYTES + 1], struct err *e)
{
    rlim_t mark = tree_read_mark(pid);
    pid_t session = getsid(pid);
    int r = -ERR_NOT_FOUND;

    (void)pthread_mutex_lock(&reg->lock);
    for (struct proc *p = reg->last; p && r < 0; p = p->list_prev) {
        if (!is_owner(p, mark, session))
            continue;
        (void)snprintf(out, SPEC_ID_MAX_BYTES + 1, "%s", p->id);
        r = 0;
    }
    (void)pthread_mutex_unlock(&reg->lock);
    return r < 0 ? err_set(e, ERR_NOT_FOUND, "process %d is no command's", pid) : 0;
}
