#include "lib/box/bringup.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/provider/limits.h"
#include "lib/recipe/agent_layer.h"
#include "lib/recipe/bootstrap.h"
#include "lib/box/bringup_internal.h"
#include "lib/box/box_environment.h"
#include "lib/box/control.h"
#include "lib/box/history.h"
#include "lib/util/beneath.h"
#include "lib/util/socket.h"
#include "lib/box/lifecycle.h"
#include "lib/box/ports.h"
#include "lib/project/repo.h"
#include "lib/box/template_boot.h"
#include "lib/image/image.h"
#include "lib/image/template.h"
#include "lib/project/project_archive.h"

#define HEALTH_MS 5000
#define INTERRUPTED "interrupted"
#define PAUSED_TO_DISK "paused to disk"
#define PAUSE_MS 40000 /* the monitor waits for the guest agent, then for the kernel */
#define EXIT_RECORD_BYTES 4096
#define STOP_MS (BOX_STOP_GRACE_MS + 15000)
#define BOXES_MARK "boxes/.store" /* an empty file */

int bringup_set_state(struct bh_box *box, enum bh_state state, const char *cause, struct err *e)
{
    int r = store_set_state(box->ctx->store, box->row.id, state, cause, e);

    return r < 0 ? r : box_reload(box, e);
}

/* ---- the directory of the boxes ---- */

struct disk_count {
    struct bh_ctx *ctx;
    size_t n_made;  /* rows of boxes that ran once */
    size_t n_there; /* of these, rows whose directory exists */
};

static int count_disk(void *arg, struct box_row *row)
{
    struct disk_count *c = arg;
    _cleanup_free_ char *dir = ctx_box_path(c->ctx, row->id, NULL);

    c->n_made += row->made;
    c->n_there += row->made && dir && access(dir, F_OK) == 0;
    return 0;
}

/*
 * Is <state_dir>/boxes the directory that this store's boxes were made in? A mount point whose file
 * system is not mounted is an empty directory too. The directory has a mark, which is made with the
 * first box, or where a box of an older store is found.
 */
static int check_boxes_dir(struct bh_ctx *ctx, struct err *e)
{
    struct disk_count c = {.ctx = ctx};
    _cleanup_free_ char *mark = path_join(ctx->state_dir, BOXES_MARK);
    _cleanup_close_ int fd = -1;
    int r;

    if (!mark)
        return err_oom(e);
    if (access(mark, F_OK) == 0)
        return 0;
    if (errno != ENOENT)
        return err_set(e, ERR_UNAVAILABLE, "look for '%s': %m", mark);
    r = store_list(ctx->store, count_disk, &c, e);
    if (r < 0)
        return r;
    if (c.n_made && !c.n_there)
        return err_field(e, ERR_UNAVAILABLE, "state_dir",
                         "state_dir: '%s/boxes' has no disk of any box of the store: is its file "
                         "system mounted? (bellhop rm removes boxes whose disks are lost)",
                         ctx->state_dir);
    fd = open(mark, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    return 0; /* on a full disk the next box makes it */
}

int bringup_is_disk_gone(struct bh_box *box, struct err *e)
{
    int r;

    if (access(box->dir, F_OK) == 0)
        return 0;
    if (errno != ENOENT)
        return err_set(e, ERR_UNAVAILABLE, "look for '%s': %m", box->dir);
    r = check_boxes_dir(box->ctx, e);
    if (r < 0)
        return r;
    return access(box->dir, F_OK) < 0 && errno == ENOENT; /* it may have been mounted just now */
}

/* ---- what goes into a new box ---- */

/* A provider waits for the cancel descriptor alone. *ret_fd is readable when that one is, or at
 * the deadline, by *ret_timer. */
static int open_cancel_at(int cancel_fd, int64_t deadline, int *ret_fd, int *ret_timer,
                          struct err *e)
{
    _cleanup_close_ int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    _cleanup_close_ int fd = epoll_create1(EPOLL_CLOEXEC);
    int64_t left_ms = deadline - clock_mono_ms();
    struct itimerspec at = {
        .it_value = {.tv_sec = left_ms / 1000, .tv_nsec = left_ms % 1000 * 1000000}};
    struct epoll_event readable = {.events = EPOLLIN};

    if (left_ms <= 0)
        return err_set(e, ERR_DEADLINE, "the deadline passed before the box was made");
    if (timer < 0 || fd < 0 || timerfd_settime(timer, 0, &at, NULL) < 0 ||
        epoll_ctl(fd, EPOLL_CTL_ADD, timer, &readable) < 0 ||
        (cancel_fd >= 0 && epoll_ctl(fd, EPOLL_CTL_ADD, cancel_fd, &readable) < 0))
        return err_sys(e, errno, "wait for the provider until the deadline");
    *ret_fd = TAKE_FD(fd);
    *ret_timer = TAKE_FD(timer);
    return 0;
}

static int prepare_disk(struct bh_box *box, int64_t deadline, struct err *e)
{
    struct image_facts facts = {.user = TEMPLATE_USER};
    int64_t begun_ms;
    int caller_cancel = box->ctx->cancel_fd;
    _cleanup_close_ int cancel = -1;
    _cleanup_close_ int timer = -1;
    struct provider_box view;
    int r = open_cancel_at(caller_cancel, deadline, &cancel, &timer, e);

    if (r == 0 && *box->spec.image_dir)
        r = image_facts(box->spec.image_dir, &facts, e);
    if (r < 0)
        return r;
    box_view(box, &view);
    view.user = facts.user;
    box->ctx->cancel_fd = cancel;
    begun_ms = clock_mono_ms();
    r = box->provider->prepare(&view, e);
    provider_report(box->provider, box->ctx, "prepare", box->row.name, begun_ms, r);
    box->ctx->cancel_fd = caller_cancel;
    image_facts_done(&facts);
    if (r == -ERR_CANCELED && !socket_wait_canceled(caller_cancel, 0))
        return err_set(e, ERR_DEADLINE, "the provider '%s' did not make the box in time",
                       box->provider->name);
    return r;
}

static int make_disk(struct bh_box *box, const struct bh_create_options *opts, int64_t deadline,
                     struct err *e)
{
    _cleanup_free_ char *token_path = box_path(box, "token");
    char token[BOX_TOKEN_BYTES * 2 + 1];
    int r;

    if (!token_path)
        return err_oom(e);
    r = check_boxes_dir(box->ctx, e);
    if (r < 0)
        return r;
    if (mkdir(box->dir, 0700) < 0 && errno != EEXIST)
        return err_sys(e, errno, "make '%s'", box->dir);
    r = io_random_hex(BOX_TOKEN_BYTES, token, e);
    if (r == 0)
        r = io_write_file(AT_FDCWD, token_path, token, strlen(token), 0600, true, e);
    if (r == 0)
        r = box_environment_save(box, opts, e);
    if (r < 0)
        return r;
    ctx_progress(box->ctx, "create", 0, 0, false, "making the box '%s'", box->row.name);
    return prepare_disk(box, deadline, e);
}

static int clone_repo(struct bh_box *box, struct client *c, const struct bh_create_options *opts,
                      const char *workdir, int64_t deadline, struct err *e)
{
    _cleanup_json_ json_t *env = NULL;
    struct client *cleaner = NULL;
    int r = box_environment_json(box, NULL, &env, e);

    if (r == 0)
        r = box_new_client(box, -1, &cleaner, e);
    if (r == 0)
        r = repo_clone(&(struct repo_request){.ctx = box->ctx,
                                              .client = c,
                                              .cleaner = cleaner,
                                              .url = opts->repo_url,
                                              .dest = workdir,
                                              .env = env,
                                              .token_file = opts->git_token_file,
                                              .deadline_mono_ms = deadline},
                       e);
    (void)client_free(cleaner);
    return r;
}

static int fill_workdir(struct bh_box *box, struct client *c, const struct bh_create_options *opts,
                        int64_t deadline, struct err *e)
{
    _cleanup_free_ char *workdir = box_workdir(box);
    struct upload_request req = {.ctx = box->ctx,
                                 .client = c,
                                 .source = opts->project,
                                 .dest = workdir,
                                 .git = opts->git ? opts->git : "full",
                                 .with_secrets = opts->with_secrets,
                                 .deadline_mono_ms = deadline};
    struct upload_result done = {0};
    int r;

    if (!workdir)
        return err_oom(e);
    if (opts->repo_url)
        return clone_repo(box, c, opts, workdir, deadline, e);
    if (!opts->project || opts->no_upload)
        return 0;
    r = upload_run(&req, &done, e);
    upload_result_done(&done);
    return r;
}

/* ---- its coding agent ---- */

static int save_agent(struct bh_box *box, const struct bootstrap_result *got, struct err *e)
{
    _cleanup_json_ json_t *agent =
        json_pack("{s:s, s:s, s:i, s:s, s:s}", "name", got->name ? got->name : "", "version",
                  got->version ? got->version : "", "port", (int)got->port, "username",
                  got->username ? got->username : "", "exec_id", got->exec_id ? got->exec_id : "");

    return agent ? store_set_agent(box->ctx->store, box->row.id, agent, e) : err_oom(e);
}

static int start_agent(struct bh_box *box, struct client *c, const char *config_dir,
                       int64_t deadline, struct bringup_report *report, struct err *e)
{
    _cleanup_free_ char *workdir = box_workdir(box);
    _cleanup_strv_ char **env = NULL;
    struct bootstrap_request req = {.ctx = box->ctx,
                                    .client = c,
                                    .box_id = box->row.id,
                                    .box_dir = box->dir,
                                    .agent = box->spec.agent,
                                    .config_dir = config_dir,
                                    .workdir = workdir,
                                    .port = box->spec.agent_port,
                                    .deadline_mono_ms = deadline};
    struct provider_layer layer = {0};
    struct bootstrap_result got = {0};
    int r = workdir ? box_environment_get(box, &env, e) : err_oom(e);

    if (r == 0)
        r = provider_layer_load(box->dir, &layer, e);
    if (r < 0)
        return r;
    req.env = env;
    req.layer = layer.target;
    req.layer_of = layer.label;
    r = bootstrap_run(&req, &got, report->step, &report->log, e);
    provider_layer_done(&layer);
    if (r < 0)
        return r;
    r = save_agent(box, &got, e);
    if (r == 0 && got.port)
        r = ports_forward(box, got.port, NULL, e);
    bootstrap_result_done(&got);
    if (r == 0)
        r = control_call_take(box->ctx, box->row.id, json_pack("{s:s}", "op", "supervise"),
                              BRINGUP_CONTROL_MS, NULL, e);
    return r;
}

/* ---- up ---- */

static int bring_content(struct bh_box *box, const struct bh_create_options *first,
                         int64_t deadline, struct bringup_report *report, struct err *e)
{
    struct client *c = NULL;
    int r = box_client(box, &c, e);

    if (r == 0)
        r = box_environment_apply(box, c, deadline, e);
    if (r == 0)
        r = template_boot(box, c, first && first->start_timeout_ms, &deadline, report, e);
    if (r == 0 && first) {
        r = fill_workdir(box, c, first, deadline, e);
        if (r < 0 && !report->step[0])
            (void)snprintf(report->step, sizeof(report->step), "%s",
                           first->repo_url ? "clone" : "upload");
    }
    if (r == 0)
        r = ports_forward(box, 0, NULL, e);
    if (r == 0 && box_has_agent(box))
        r = start_agent(box, c, first ? first->agent_config : NULL, deadline, report, e);
    return r;
}

/*
 * Gives the box the layer of its coding agent, before it starts. Without one the agent is sent
 * into the box, so only a cancel is an error here.
 */
static int give_layer(struct bh_box *box, struct err *e)
{
    const struct agent_layer_request req = {
        .ctx = box->ctx, .agent = box->spec.agent, .box_id = box->row.id, .box_dir = box->dir};
    struct agent_layer layer = {.lock = -1};
    struct err why = {0};
    int r = box->provider->layers ? agent_layer_take(&req, &layer, &why) : 0;

    if (r == -ERR_CANCELED)
        return err_set(e, ERR_CANCELED, "canceled");
    if (r < 0)
        ctx_progress(box->ctx, "warning", 0, 0, false, "no shared layer for %s: %s",
                     box->spec.agent, why.message);
    r = provider_layer_save(box->provider, box->dir, layer.tree, layer.label, e);
    agent_layer_done(&layer);
    return r;
}

static int bring_processes(struct bh_box *box, int64_t deadline, struct err *e)
{
    int r = bringup_set_state(box, BH_STATE_PROVISIONING, "", e);

    box->client = client_free(box->client);
    if (r == 0)
        r = give_layer(box, e);
    if (r == 0) {
        ctx_progress(box->ctx, "start", 0, 0, false, "starting the box '%s'", box->row.name);
        r = control_ensure_monitor(box->ctx, box->row.id, deadline, e);
    }
    return r;
}

/* A hold keeps the lease from expiring while the box is filled. */
static int bring_up(struct bh_box *box, const struct bh_create_options *first, int64_t deadline,
                    struct bringup_report *report, struct err *e)
{
    _cleanup_close_ int hold = -1;
    int r = first ? make_disk(box, first, deadline, e) : 0;

    if (r == 0 && !box_row_is_live(&box->row))
        r = bring_processes(box, deadline, e);
    if (r == 0)
        r = box_hold(box, &hold, e);
    if (r == 0)
        r = bringup_set_state(box, BH_STATE_BOOTSTRAPPING, "", e);
    if (r == 0)
        r = bring_content(box, first, deadline, report, e);
    if (r == 0)
        r = control_call_take(box->ctx, box->row.id,
                              json_pack("{s:s, s:I}", "op", "extend", "until_ms",
                                        (json_int_t)(clock_real_ms() + box->spec.timeout_ms)),
                              BRINGUP_CONTROL_MS, NULL, e);
    if (r == 0)
        r = bringup_set_state(box, BH_STATE_RUNNING, "", e);
    if (r == 0)
        ctx_progress(box->ctx, "ready", 0, 0, true, "the box '%s' is ready", box->row.name);
    return r;
}

/*
 * Rolls back. The cancel that ended the work does not count here, and an error of the rollback is
 * only mentioned: *why stays the first error. A new box is removed. A live box whose coding agent did not come back stays reachable, in state
 * error. A box that did not start has its processes ended and is in state error, or stopped if the
 * start was canceled.
 */
static void undo_bringup(struct bh_box *box, bool is_new, bool was_live, int r, struct err *why)
{
    _cleanup_free_ char *cause = strdup(why->message);
    int cancel_fd = box->ctx->cancel_fd;
    struct err undo = {0};
    int undone;

    box->ctx->cancel_fd = -1;
    box->client = client_free(box->client);
    if (is_new)
        undone = bringup_destroy_locked(box, why->message, &undo);
    else if (was_live)
        undone = bringup_set_state(box, BH_STATE_ERROR, why->message, &undo);
    else
        undone = bringup_end_processes(box, r == -ERR_CANCELED ? BH_STATE_STOPPED : BH_STATE_ERROR,
                                       why->message, &undo);
    if (undone < 0 && cause)
        (void)snprintf(why->message, sizeof(why->message),
                       "%s; the rest is left to gc, because undoing it failed: %s", cause,
                       undo.message);
    box->ctx->cancel_fd = cancel_fd;
}

int bringup_run_locked(struct bh_box *box, const struct bh_create_options *first,
                       int64_t deadline_mono_ms, struct bringup_report *report, struct err *e)
{
    bool was_live = box_row_is_live(&box->row);
    struct bringup_report own = {0};
    struct err why = {0};
    int r;

    r = bring_up(box, first, deadline_mono_ms, report ? report : &own, &why);
    free(own.log);
    if (r == 0)
        return 0;
    undo_bringup(box, first != NULL, was_live, r, &why);
    if (e)
        *e = why;
    return r;
}

int bringup_agent_locked(struct bh_box *box, int64_t deadline_mono_ms,
                         struct bringup_report *report, struct err *e)
{
    struct client *c = NULL;
    int r = box_client(box, &c, e);

    return r < 0 ? r : start_agent(box, c, NULL, deadline_mono_ms, report, e);
}

/* ---- down ---- */

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
    int64_t begun_ms;
    struct provider_box view;
    int r = bringup_set_state(box, BH_STATE_STOPPING, cause, e);
    bool is_noted = r == 0;

    /* A box is stopped on a full disk too. If its state cannot be stored even afterwards, that is
     * the result; the next command sees that the box does not run and stores it. */
    if (r < 0 && r != -ERR_EXHAUSTED)
        return r;
    box->client = client_free(box->client);
    end_monitor(box, cause, BOX_STOP_GRACE_MS);
    box_view(box, &view);
    begun_ms = clock_mono_ms();
    r = box->provider->stop(&view, 0, e);
    provider_report(box->provider, box->ctx, "stop", box->row.name, begun_ms, r);
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

int bringup_destroy_locked(struct bh_box *box, const char *cause, struct err *e)
{
    int64_t begun_ms;
    _cleanup_json_ json_t *exit_status = NULL;
    _cleanup_free_ char *logs = NULL;
    struct store_end end = {.cause = cause};
    struct provider_box view;
    int r = bringup_set_state(box, BH_STATE_DESTROYING, cause, e);

    /* Nothing is removed unless the next command will go on with it. It does so with a box that
     * never ran: the undo of a new box on a full disk frees the room to store its state. */
    if (r < 0 && (r != -ERR_EXHAUSTED || box->row.made))
        return err_wrap(e, r, "the box '%s' was not removed", box->row.name);
    box->client = client_free(box->client);
    end_monitor(box, "removed", 0);
    box_view(box, &view);
    begun_ms = clock_mono_ms();
    r = box->provider->destroy(&view, e);
    provider_report(box->provider, box->ctx, "destroy", box->row.name, begun_ms, r);
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

/* ---- pause and resume ---- */

/* Is a process of the box there? Else the box is marked as stopped. */
static int find_paused(struct bh_box *box, struct err *e)
{
    struct provider_box view;
    struct provider_run run;
    int r;

    box_view(box, &view);
    r = box->provider->find(&view, &run, e);
    if (r == 0)
        r = bringup_stop_locked(box, BRINGUP_ENDED_UNSEEN, e);
    else
        return r < 0 ? r : 0;
    return r < 0 ? r
                 : err_field(e, ERR_PRECONDITION, "state", "the box '%s' is stopped: %s",
                             box->row.name, BRINGUP_ENDED_UNSEEN);
}

int bringup_pause_locked(struct bh_box *box, int64_t deadline_mono_ms, struct err *e)
{
    struct err why = {0};
    struct provider_box view;
    int r;

    if (box->row.state != BH_STATE_RUNNING)
        return err_field(e, ERR_PRECONDITION, "state",
                         "the box '%s' is %s: only a running box can be paused", box->row.name,
                         bh_state_name(box->row.state));
    if (!(box->provider->pauses & PROVIDER_PAUSE_FREEZE))
        return err_field(e, ERR_UNIMPLEMENTED, "level",
                         "freeze: the provider '%s' cannot do it; the level disk works",
                         box->provider->name);
    box_view(box, &view);
    r = box->provider->check_pause(&view, PROVIDER_PAUSE_FREEZE, e);
    if (r == 0)
        r = control_ensure_monitor(box->ctx, box->row.id, deadline_mono_ms, e);
    if (r == 0)
        r = bringup_set_state(box, BH_STATE_PAUSING, "paused by a command", e);
    if (r < 0)
        return r;
    box->client = client_free(box->client);
    r = control_call_take(box->ctx, box->row.id, json_pack("{s:s}", "op", "pause"), PAUSE_MS, NULL,
                          &why);
    if (r == 0)
        return bringup_set_state(box, BH_STATE_PAUSED, "paused by a command", e);
    (void)bringup_resume_locked(box, why.message, clock_mono_ms() + BOX_RESUME_MS, NULL);
    if (e)
        *e = why;
    return r;
}

int bringup_resume_locked(struct bh_box *box, const char *cause, int64_t deadline_mono_ms,
                          struct err *e)
{
    bool is_pausing = box->row.state == BH_STATE_PAUSING; /* it may run still */
    int64_t most_ms = clock_mono_ms() + BOX_RESUME_MS;
    struct err why = {0};
    int r = find_paused(box, e);

    if (deadline_mono_ms < most_ms)
        most_ms = deadline_mono_ms;
    if (r == 0 && box->row.state == BH_STATE_PAUSED)
        r = bringup_set_state(box, BH_STATE_RESUMING, cause, e);
    if (r < 0)
        return r;
    box->client = client_free(box->client); /* its connections are from before the pause */
    r = control_ensure_monitor(box->ctx, box->row.id, most_ms, &why);
    if (r == 0)
        r = control_call_take(
            box->ctx, box->row.id,
            json_pack("{s:s, s:i}", "op", "resume", "timeout_ms", clock_until_ms(most_ms)),
            BOX_RESUME_MS + BRINGUP_CONTROL_MS, NULL, &why);
    if (r == 0)
        return bringup_set_state(box, BH_STATE_RUNNING, cause, e);
    /* An interrupted resume is finished by the next command. */
    if (r != -ERR_CANCELED && !is_pausing)
        (void)bringup_set_state(box, BH_STATE_PAUSED, why.message, NULL);
    if (e)
        *e = why;
    return r;
}

/* ---- finding it as it is ---- */

int bringup_settle_locked(struct bh_box *box, bool *ret_gone, struct err *e)
{
    enum bh_state state = box->row.state;

    *ret_gone = false;
    if (!lifecycle_is_transitional(state))
        return 0;
    if (box_row_is_paused(&box->row)) {
        int r = bringup_resume_locked(box, INTERRUPTED, clock_mono_ms() + BOX_RESUME_MS, e);

        return r < 0 && box->row.state == BH_STATE_STOPPED ? 0 : r;
    }
    if (state == BH_STATE_DESTROYING || !box->row.made) {
        _cleanup_free_ char *before = strdup(box->row.cause);

        *ret_gone = true;
        return bringup_destroy_locked(
            box, state == BH_STATE_DESTROYING && before && *before ? before : INTERRUPTED, e);
    }
    return bringup_stop_locked(box, INTERRUPTED, e);
}

/* Verifies a box whose row says that it runs: 1, or 0 after it was marked stopped. */
static int check_processes(struct bh_box *box, int64_t deadline, struct err *e)
{
    int64_t begun_ms;
    struct provider_box view;
    struct provider_run run;
    struct client *c = NULL;
    int r;

    box_view(box, &view);
    begun_ms = clock_mono_ms();
    r = box->provider->find(&view, &run, e);
    provider_report(box->provider, box->ctx, "find", box->row.name, begun_ms, r);
    if (r < 0)
        return r;
    if (r == 0) {
        r = bringup_stop_locked(box, BRINGUP_ENDED_UNSEEN, e);
        return r < 0 ? r : 0;
    }
    r = control_ensure_monitor(box->ctx, box->row.id, deadline, e);
    if (r == 0)
        r = box_client(box, &c, e);
    if (r == 0)
        r = client_health(c, HEALTH_MS, e);
    return r < 0 ? r : 1;
}

void bringup_notice(struct bh_box *box)
{
    _cleanup_close_ int lock = -1;
    struct provider_box view;
    struct provider_run run;
    int r;

    if (!box_row_is_live(&box->row))
        return;
    r = control_ping(box->ctx, box->row.id, NULL);
    if (r == 0 || r == -ERR_CANCELED ||
        store_lock_name(box->ctx->store, box->row.name, clock_mono_ms(), -1, &lock, NULL) < 0 ||
        box_reload(box, NULL) < 0 || !box_row_is_live(&box->row))
        return;
    box_view(box, &view);
    if (box->provider->find(&view, &run, NULL) == 0)
        (void)bringup_stop_locked(box, BRINGUP_ENDED_UNSEEN, NULL);
}

int bringup_back_locked(struct bh_box *box, int64_t deadline_mono_ms, struct bringup_report *report,
                        struct err *e)
{
    bool is_gone = false;
    int r = bringup_settle_locked(box, &is_gone, e);

    if (r < 0)
        return r;
    if (is_gone)
        return box_reload(box, e); /* it says what became of the box */
    if (box->row.state == BH_STATE_PAUSED && box->ctx->no_resume)
        return err_field(e, ERR_PRECONDITION, "state", "the box '%s' is paused", box->row.name);
    if (box->row.state == BH_STATE_PAUSED) {
        r = bringup_resume_locked(box, "used by a command", deadline_mono_ms, e);
        if (r == 0 || box->row.state != BH_STATE_STOPPED)
            return r;
    }
    if (box_row_is_live(&box->row)) {
        r = check_processes(box, deadline_mono_ms, e);
        if (r < 0)
            return r;
        if (r == 1)
            return 0;
    }
    if (box->ctx->no_resume)
        return err_field(e, ERR_PRECONDITION, "state", "the box '%s' %s", box->row.name,
                         box->row.state == BH_STATE_ERROR ? "could not be started" : "is stopped");
    r = bringup_is_disk_gone(box, e);
    if (r < 0)
        return r;
    if (r == 1) {
        r = bringup_destroy_locked(box, BRINGUP_DISK_GONE, e);
        return r < 0 ? r : box_reload(box, e);
    }
    r = limits_check(box->ctx->limits, &box->spec, e);
    return r < 0 ? r : bringup_run_locked(box, NULL, deadline_mono_ms, report, e);
}

int bringup_back(struct bh_box *box, int64_t deadline_mono_ms, struct bringup_report *report,
                 struct err *e)
{
    _cleanup_close_ int lock = -1;
    int r;

    r = store_lock_name(box->ctx->store, box->row.name, deadline_mono_ms, box->ctx->cancel_fd,
                        &lock, e);
    if (r == 0)
        r = box_reload(box, e);
    if (r == 0)
        r = bringup_back_locked(box, deadline_mono_ms, report, e);
    return r;
}

/* ---- the public ones ---- */

static int with_lock(struct bh_box *box, int64_t timeout_ms,
                     int (*fn)(struct bh_box *box, int64_t deadline, struct err *e),
                     struct bh_error *err)
{
    int64_t deadline = clock_mono_ms() + (timeout_ms > 0 ? timeout_ms : BRINGUP_TIMEOUT_MS);
    _cleanup_close_ int lock = -1;
    struct err e = {0};
    int r;

    r = store_lock_name(box->ctx->store, box->row.name, deadline, box->ctx->cancel_fd, &lock, &e);
    if (r == 0)
        r = box_reload(box, &e);
    if (r == 0)
        r = fn(box, deadline, &e);
    return ctx_fail(err, r, &e);
}

static int stop_as(struct bh_box *box, const char *cause, struct err *e)
{
    bool is_gone = false;
    int r = box_row_is_paused(&box->row) ? 0 : bringup_settle_locked(box, &is_gone, e);

    if (r < 0)
        return r;
    if (is_gone)
        return box_reload(box, e);
    if (box->row.state == BH_STATE_STOPPED)
        return 0;
    return bringup_stop_locked(box, cause, e);
}

static int stop_it(struct bh_box *box, int64_t deadline, struct err *e)
{
    (void)deadline;
    return stop_as(box, "stopped by a command", e);
}

static int pause_to_disk(struct bh_box *box, int64_t deadline, struct err *e)
{
    (void)deadline;
    return stop_as(box, PAUSED_TO_DISK, e);
}

static int freeze_it(struct bh_box *box, int64_t deadline, struct err *e)
{
    bool is_gone = false;
    int r = box->row.state == BH_STATE_PAUSED ? 0 : bringup_settle_locked(box, &is_gone, e);

    if (r < 0 || box->row.state == BH_STATE_PAUSED)
        return r;
    return is_gone ? box_reload(box, e) : bringup_pause_locked(box, deadline, e);
}

static int resume_it(struct bh_box *box, int64_t deadline, struct err *e)
{
    bool is_gone = false;
    int r = box->row.state == BH_STATE_PAUSED
                ? bringup_resume_locked(box, "resumed by a command", deadline, e)
                : bringup_settle_locked(box, &is_gone, e);

    if (r < 0)
        return r;
    if (is_gone)
        return box_reload(box, e);
    if (box->row.state == BH_STATE_STOPPED && str_eq(box->row.cause, PAUSED_TO_DISK))
        return bringup_run_locked(box, NULL, deadline, NULL, e);
    return box->row.state == BH_STATE_RUNNING
               ? 0
               : err_field(e, ERR_PRECONDITION, "state",
                           "the box '%s' is %s, not paused: 'bellhop start' starts it",
                           box->row.name, bh_state_name(box->row.state));
}

static int destroy_it(struct bh_box *box, int64_t deadline, struct err *e)
{
    (void)deadline;
    return bringup_destroy_locked(box, "removed by a command", e);
}

int bh_stop(struct bh_box *box, int64_t timeout_ms, struct bh_error *err)
{
    return with_lock(box, timeout_ms, stop_it, err);
}

int bh_pause(struct bh_box *box, const char *level, int64_t timeout_ms, struct bh_error *err)
{
    static const struct {
        const char *name;
        int (*fn)(struct bh_box *box, int64_t deadline, struct err *e);
    } levels[] = {{"freeze", freeze_it}, {"disk", pause_to_disk}};
    bool can_freeze = box->provider && box->provider->pauses & PROVIDER_PAUSE_FREEZE;
    const char *name = level ? level : can_freeze ? "freeze" : "disk";
    struct err e = {0};

    for (size_t i = 0; i < N_ELEMENTS(levels); i++)
        if (str_eq(levels[i].name, name))
            return with_lock(box, timeout_ms, levels[i].fn, err);
    return ctx_fail(err,
                    str_eq(name, "memory")
                        ? err_field(&e, ERR_UNIMPLEMENTED, "level",
                                    "memory: the provider '%s' cannot do it",
                                    box->spec.provider ? box->spec.provider : "")
                        : err_field(&e, ERR_INVALID, "level",
                                    "level: '%.40s' is not one of 'freeze' and 'disk'", name),
                    &e);
}

int bh_resume(struct bh_box *box, int64_t timeout_ms, struct bh_error *err)
{
    return with_lock(box, timeout_ms, resume_it, err);
}

int bh_destroy(struct bh_box *box, int64_t timeout_ms, struct bh_error *err)
{
    return with_lock(box, timeout_ms, destroy_it, err);
}

int bh_start(struct bh_box *box, int64_t timeout_ms, struct bh_error *err)
{
    int64_t deadline = clock_mono_ms() + (timeout_ms > 0 ? timeout_ms : BRINGUP_TIMEOUT_MS);
    struct bringup_report report = {0};
    bool no_resume = box->ctx->no_resume;
    struct err e = {0};
    int r;

    box->ctx->no_resume = false; /* an explicit start is not an implicit resume */
    r = bringup_back(box, deadline, &report, &e);
    box->ctx->no_resume = no_resume;
    r = ctx_fail(err, r, &e);
    if (r < 0 && err && report.step[0]) {
        (void)snprintf(err->step, sizeof(err->step), "%s", report.step);
        (void)snprintf(err->detail, sizeof(err->detail), "%s", report.log ? report.log : "");
    }
    free(report.log);
    return r;
}
