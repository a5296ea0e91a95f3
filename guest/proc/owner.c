#include "proc/owner.h"

#include <stdio.h>
#include <unistd.h>

#include "proc/proc.h"

/* The session's number is the command's until its first process has been waited for. */
static bool is_leader(struct proc *p, pid_t session)
{
    bool is;

    (void)pthread_mutex_lock(&p->lock);
    is = p->info.state == PROC_RUNNING && !p->is_reaped && p->info.pid == session;
    (void)pthread_mutex_unlock(&p->lock);
    return is;
}

int owner_find(struct registry *reg, pid_t pid, char out[SPEC_ID_MAX_BYTES + 1], struct err *e)
{
    uint32_t serial = 0;
    bool is_marked = tree_find_serial(pid, reg->instance, &serial);
    pid_t session = getsid(pid);
    int r = -ERR_NOT_FOUND;

    (void)pthread_mutex_lock(&reg->lock);
    for (struct proc *p = reg->last; p && r < 0; p = p->list_prev) {
        if (is_marked ? p->serial != serial : !is_leader(p, session))
            continue;
        (void)snprintf(out, SPEC_ID_MAX_BYTES + 1, "%s", p->id);
        r = 0;
    }
    (void)pthread_mutex_unlock(&reg->lock);
    return r < 0 ? err_set(e, ERR_NOT_FOUND, "process %d is no command's", pid) : 0;
}
