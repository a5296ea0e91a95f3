#include "dialect/e2b/file_paths.h"

#include <stdlib.h>

#include "dialect/e2b/account.h"
#include "agent.h"

static int files_caller_init(struct files_call *f, struct err *e)
{
    f->owner = (struct owner){f->user.uid, f->user.gid};
    return fs_caller_new(f->agent->root, NULL, fs_root_path(f->agent->root), &f->caller, e);
}

int files_call_init(struct files_call *f, const struct agent *a, const char *user, const char *path,
                    struct err *e)
{
    int r;

    f->agent = a;
    r = account_authenticate(a, user, &f->user, e);
    if (r == 0)
        r = files_caller_init(f, e);
    if (r == 0)
        r = files_call_path(f, path, &f->path, e);
    return r;
}

int files_rest_init(struct files_call *f, const struct agent *a, const char *user, struct err *e)
{
    int r;

    f->agent = a;
    r = account_look_up(a, user, &f->user, e);
    return r < 0 ? r : files_caller_init(f, e);
}

void files_call_done(struct files_call *f)
{
    user_done(&f->user);
    fs_caller_unref(f->caller);
    free(f->path);
}

int files_call_path(const struct files_call *f, const char *path, char **ret, struct err *e)
{
    return account_path(f->agent, &f->user, path, ret, e);
}
