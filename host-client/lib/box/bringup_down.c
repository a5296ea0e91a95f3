/* bringup_down: the end of a box: stop and removal. */
#include "lib/box/bringup_internal.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/box/box_provider.h"
#include "lib/box/control.h"
#include "lib/box/history.h"
#include "lib/util/beneath.h"

#define EXIT_RECORD_BYTES 4096
#define STOP_MS (BOX_STOP_GRACE_MS + 15000)

/* The monitor stops and reaps its children. A monitor that does not answer is killed. */
static void end_monitor(struct bh_box *box, const char *cause, int grace_ms)
{
    (void)control_call_take(
        box->ctx, box->row.id,
        json_pack("{s:s, s:s, s:i}", "op", "stop", "cause", cause, "grace_ms", grace_ms), STOP_MS,
        NULL, NULL);
    control_kill_monitor(box->ctx, box->row.id);
}

int bringup_end_processes(struct bh_box *box, enum bh_state then, const char *cause, struct err *e)
{
    int r = bringup_set_state(box, BH_STATE_STOPPING, cause, e);
    bool is_noted = r == 0;

    /* A box is stopped on a full disk too. If its state cannot be stored even afterwards, that is
     * the result; the next command sees that the box does not run and stores it. */
    if (r < 0 && r != -ERR_EXHAUSTED)
        return r;
    box->client = client_free(box->client);
    end_monitor(box, cause, BOX_STOP_GRACE_MS);
    r = box_provider_stop(box, 0, e);
    if (r == 0 && !is_noted)
        r = bringup_set_state(box, BH_STATE_STOPPING, cause, e);
    if (r == 0)
        r = bringup_set_state(box, then, cause, e);
    if (r == -ERR_EXHAUSTED)
        box->row.state = then;
    return r;
}

int bringup_stop_locked(struct bh_box *box, const char *cause, struct err *e)
{
    return bringup_end_processes(box, BH_STATE_STOPPED, cause, e);
}

/* The end of what the box's first process printed. NULL: nothing. */
static char *read_last_logs(struct bh_box *box, size_t *ret_len)
{
    static const char *const names[] = {"console.log", "agent.log"};

    for (size_t i = 0; i < N_ELEMENTS(names); i++) {
        _cleanup_free_ char *path = box_path(box, names[i]);
        _cleanup_close_ int fd = path ? open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW) : -1;
        _cleanup_free_ char *text = fd < 0 ? NULL : malloc(HISTORY_LOGS_BYTES);
        off_t size = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);

        if (!text || size <= 0)
            continue;
        if (lseek(fd, size > HISTORY_LOGS_BYTES ? size - HISTORY_LOGS_BYTES : 0, SEEK_SET) < 0 ||
            io_read_full(fd, text, HISTORY_LOGS_BYTES, ret_len, NULL) < 0 || !*ret_len)
            continue;
        return TAKE(text);
    }
    return NULL;
}

/* {"code","signal"} of the monitor's exit record. NULL: there is none. */
static json_t *read_exit(struct bh_box *box)
{
    _cleanup_free_ char *path = box_path(box, "exit.json");
    _cleanup_free_ char *text = NULL;
    _cleanup_json_ json_t *record = NULL;
    size_t len = 0;

    if (!path || io_read_file(AT_FDCWD, path, EXIT_RECORD_BYTES, &text, &len, NULL) < 0 ||
        jx_parse(text, len, &record, NULL) < 0)
        return NULL;
    return json_incref(json_object_get(record, "exit"));
}

/* A file that the record is made of. */
static bool is_for_record(const char *name)
{
    return str_eq(name, "exit.json") || str_eq(name, "console.log") || str_eq(name, "agent.log");
}

/* Removes the content of the box's directory but what its record is made of: a removal that is
 * killed before the record is written can make it again. */
static int remove_content(struct bh_box *box, struct err *e)
{
    _cleanup_closedir_ DIR *dir = opendir(box->dir);
    const struct dirent *d;
    int r = 0;

    if (!dir)
        return errno == ENOENT ? 0 : err_sys(e, errno, "open '%s'", box->dir);
    while (r == 0 && (d = readdir(dir))) {
        _cleanup_free_ char *path = NULL;

        if (is_for_record(d->d_name) || str_eq(d->d_name, ".") || str_eq(d->d_name, ".."))
            continue;
        path = path_join(box->dir, d->d_name);
        if (!path)
            return err_oom(e);
        if (unlink(path) < 0 && errno != ENOENT)
            r = errno == EISDIR ? dirtree_remove(path, e) : err_sys(e, errno, "remove '%s'", path);
    }
    return r;
}

/* The row, then the rest of the directory; gc removes a directory without a row. On a full disk the
 * directory goes first, and the record does without logs. */
static int remove_row_and_dir(struct bh_box *box, struct store_end *end, struct err *e)
{
    struct store *s = box->ctx->store;
    int r = store_remove(s, box->row.id, end, e);

    if (r == 0 || r == -ERR_EXHAUSTED) {
        int removed = dirtree_remove(box->dir, e);

        if (removed < 0)
            return removed;
    }
    if (r == -ERR_EXHAUSTED)
        r = store_remove(s, box->row.id, end, e);
    if (r == -ERR_EXHAUSTED) {
        end->logs = NULL;
        end->n_logs = 0;
        r = store_remove(s, box->row.id, end, e);
    }
    return r;
}

static int end_box(struct bh_box *box, const char *cause, bool keeps_disk, struct err *e)
{
    _cleanup_json_ json_t *exit_status = NULL;
    _cleanup_free_ char *logs = NULL;
    struct store_end end = {.cause = cause};
    int r = bringup_set_state(box, BH_STATE_DESTROYING, cause, e);

    /* Nothing is removed unless the next command will go on with it. It does so with a box that
     * never ran: the undo of a new box on a full disk frees the room to store its state. */
    if (r < 0 && (r != -ERR_EXHAUSTED || box->row.made))
        return err_wrap(e, r, "the box '%s' was not removed", box->row.name);
    box->client = client_free(box->client);
    end_monitor(box, "removed", 0);
    r = keeps_disk ? 0 : box_provider_destroy(box, e);
    if (r < 0)
        return r;
    end.exit = exit_status = read_exit(box);
    end.logs = logs = read_last_logs(box, &end.n_logs);
    r = remove_content(box, e);
    if (r == 0)
        r = remove_row_and_dir(box, &end, e);
    if (r == 0)
        store_forget_lock(box->ctx->store, box->row.name);
    return r;
}

int bringup_destroy_locked(struct bh_box *box, const char *cause, struct err *e)
{
    return end_box(box, cause, false, e);
}

int bringup_forget_locked(struct bh_box *box, const char *cause, struct err *e)
{
    return end_box(box, cause, true, e);
}
