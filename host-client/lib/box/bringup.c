#include "lib/box/bringup.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/jsonx.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/recipe/agent_layer.h"
#include "lib/recipe/bootstrap.h"
#include "lib/box/bringup_internal.h"
#include "lib/box/box_environment.h"
#include "lib/box/box_provider.h"
#include "lib/box/control.h"
#include "lib/box/ports.h"
#include "lib/box/snapshot.h"
#include "lib/project/repo.h"
#include "lib/box/template_boot.h"
#include "lib/image/image.h"
#include "lib/image/template.h"
#include "lib/project/project_archive.h"

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

    if (access(box->dir, F_OK) == 0) {
        r = box_provider_has_disk(box, e);
        return r < 0 ? r : r == 0;
    }
    if (errno != ENOENT)
        return err_set(e, ERR_UNAVAILABLE, "look for '%s': %m", box->dir);
    r = check_boxes_dir(box->ctx, e);
    if (r < 0)
        return r;
    return access(box->dir, F_OK) < 0 && errno == ENOENT; /* it may have been mounted just now */
}

/* ---- what goes into a new box ---- */

int bringup_make_dir(struct bh_box *box, struct err *e)
{
    int r = check_boxes_dir(box->ctx, e);

    if (r < 0)
        return r;
    return mkdir(box->dir, 0700) < 0 && errno != EEXIST ? err_sys(e, errno, "make '%s'", box->dir)
                                                        : 0;
}

static int prepare_disk(struct bh_box *box, int64_t deadline, struct err *e)
{
    struct image_facts facts = {.user = TEMPLATE_USER};
    int r = *box->spec.image_dir ? image_facts(box->spec.image_dir, &facts, e) : 0;

    if (r == 0)
        r = box_provider_prepare(box, facts.user, deadline, e);
    image_facts_done(&facts);
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
    r = bringup_make_dir(box, e);
    if (r == 0)
        r = io_random_hex(BOX_TOKEN_BYTES, token, e);
    if (r == 0)
        r = io_write_file(AT_FDCWD, token_path, token, strlen(token), 0600, true, e);
    if (r == 0)
        r = box_environment_save(box, opts, e);
    if (r == 0 && box->from)
        r = snapshot_save_session(box, snapshot_session(box->from), e);
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
    if (r == 0 && box_has_agent(box) && !(first && first->defer_agent))
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

/* It runs, and the box that was gone is destroyed: one change. */
static int take_place(struct bh_box *box, struct err *e)
{
    const struct store_end end = {.cause = box->replaces_why};
    int r = store_take_place(box->ctx->store, box->row.id, box->replaces, &end, e);

    return r < 0 ? r : box_reload(box, e);
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
        r = box->replaces ? take_place(box, e) : bringup_set_state(box, BH_STATE_RUNNING, "", e);
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
