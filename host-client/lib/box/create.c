/* create: bh_create(), from the checks to a running box. */
#include <fcntl.h>
#include <nettle/sha2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/jsonx.h"
#include "common/str.h"
#include "lib/recipe/bootstrap.h"
#include "lib/box/box.h"
#include "lib/box/box_provider.h"
#include "lib/box/bringup.h"
#include "lib/box/control.h"
#include "lib/box/remote.h"
#include "lib/box/quota.h"
#include "lib/box/history.h"
#include "lib/box/snapshot.h"
#include "lib/box/store_access.h"
#include "lib/image/image.h"
#include "lib/provider/limits.h"
#include "lib/util/context.h"
#include "lib/project/project.h"
#include "lib/project/repo.h"
#include "lib/util/socket.h"
#include "lib/project/project_archive.h"

#define AGENT_HEALTH_MS 2000
#define CONTROL_MS 5000
#define KEY_NAME_DIGITS 32
#define BOXES_LOCK ".boxes" /* no box's name */

struct creation {
    struct bh_ctx *ctx;
    const struct bh_create_options *opts;
    const char *name;
    char own_name[PROJECT_NAME_BYTES]; /* the box's name if the caller gave none */
    struct project project;
    struct snapshot_row from; /* with opts->from */
    struct snapshot_options from_options;
    struct spec spec;
    int64_t deadline_mono_ms;
    struct bringup_report report;
};

/* Did the library choose the name? Then it may choose another. */
static bool is_own_name(const struct creation *c)
{
    return c->name == c->own_name;
}

/* Checks that need no lock. Nothing has been made yet. */
static int check_inputs(struct creation *c, struct err *e)
{
    const struct bh_create_options *o = c->opts;
    int r = 0;

    if (!provider_find(c->spec.provider))
        return err_field(e, ERR_NOT_FOUND, "provider",
                         "provider: there is no provider '%.64s' ('bellhop providers' lists them)",
                         c->spec.provider);
    if (strcmp(c->spec.agent, "none") != 0)
        r = bootstrap_check(c->ctx, c->spec.agent, e);
    if (r < 0)
        return err_at(e, r, "agent");
    if (o->project && !o->no_upload)
        r = upload_check(o->project, e);
    if (r < 0)
        return err_at(e, r, "project");
    if (r == 0 && o->git_token_file)
        r = repo_check_token(o->git_token_file, e);
    if (r == 0 && o->agent_config && access(o->agent_config, R_OK | X_OK) < 0) {
        r = err_sys(e, errno, "agent-config '%s'", o->agent_config);
        (void)err_at(e, r, "agent-config");
    }
    return r;
}

/* A box with the host's network listens on this machine's ports: a taken port is an error. */
static int check_port(const struct spec *s, struct err *e)
{
    _cleanup_close_ int fd = -1;
    uint16_t port = 0;

    if (!s->agent_port || strcmp(s->network, "host") != 0)
        return 0;
    return socket_listen_tcp(s->agent_port, &fd, &port, e);
}

/* ---- a new one ---- */

static bool needs_image(const struct spec *s)
{
    const struct provider *p = provider_find(s->provider);

    return p && (p->image == PROVIDER_IMAGE_ROOTFS || p->image == PROVIDER_IMAGE_OCI) &&
           strcmp(s->image, SPEC_IMAGE_HOST) != 0 && !*s->pool;
}

/* settle_image() skips a box that exists. That box may have gone since. */
static int resolve_image(struct creation *c, struct err *e)
{
    const char *image = *c->spec.image_dir ? c->spec.image_dir : c->spec.image;
    char *dir = NULL;
    int r = !needs_image(&c->spec) ? 0
            : provider_find(c->spec.provider)->image == PROVIDER_IMAGE_OCI
                ? image_settle(c->ctx, &c->spec, c->opts->host_env, e)
                : image_resolve(c->ctx, image, &dir, e);

    if (!dir)
        return r;
    free(c->spec.image_dir);
    c->spec.image_dir = dir;
    return 0;
}

static int count_row(void *arg, struct box_row *row)
{
    size_t *n = arg;

    (void)row;
    ++*n;
    return 0;
}

static int check_boxes(struct creation *c, struct err *e)
{
    const struct bh_limits *l = c->ctx->limits;
    size_t n = 0;
    int r = l && l->boxes ? store_list(c->ctx->store, count_row, &n, e) : 0;

    return r < 0 ? r : limits_check_boxes(l, n, e);
}

/* Adds the row; with a limit of boxes or a quota, nobody else adds one meanwhile. */
static int add_row(struct creation *c, json_t *spec, struct box_row *ret, struct err *e)
{
    _cleanup_close_ int lock = -1;
    int r = 0;

    if ((c->ctx->limits && c->ctx->limits->boxes) || *quota_owner(&c->spec))
        r = store_lock_name(c->ctx->store, BOXES_LOCK, c->deadline_mono_ms, c->ctx->cancel_fd,
                            &lock, e);
    if (r == 0)
        r = check_boxes(c, e);
    if (r == 0)
        r = quota_check(c->ctx->store, &c->spec, e);
    return r < 0 ? r : store_add(c->ctx->store, c->name, spec, c->opts->key, ret, e);
}

/* The provider's check, which fills in defaults; those above a limit are lowered. */
static int check_spec(struct creation *c, const struct provider *p, struct err *e)
{
    bool is_changed;
    int r = box_provider_check(p, c->ctx, &c->spec, c->deadline_mono_ms, e);

    if (r < 0)
        return r;
    limits_lower(c->ctx->limits, &c->spec, &is_changed);
    if (is_changed)
        r = box_provider_check(p, c->ctx, &c->spec, c->deadline_mono_ms, e);
    return r < 0 ? r : limits_check(c->ctx->limits, &c->spec, e);
}

/* The box has the snapshot's layers before its disk is made of them. */
static int take_snapshot(struct creation *c, struct bh_box *box, struct err *e)
{
    char cause[96];
    int r = store_add_layers(c->ctx->store, box->row.id, &c->from, e);

    (void)snprintf(cause, sizeof(cause), "the snapshot '%.64s'", c->from.name);
    if (r == 0)
        r = store_add_event(c->ctx->store, box->row.id, NULL, "from", cause, e);
    if (r == 0)
        box->from = &c->from;
    else
        (void)bringup_destroy_locked(box, e ? e->message : "", NULL);
    return r;
}

static int create_new(struct creation *c, struct bh_box **ret, struct err *e)
{
    const struct provider *p = provider_find(c->spec.provider);
    _cleanup_json_ json_t *spec = NULL;
    struct box_row row = {0};
    struct bh_box *box = NULL;
    int r = check_spec(c, p, e);

    if (r == 0)
        r = resolve_image(c, e);
    if (r == 0)
        r = check_port(&c->spec, e);
    if (r < 0)
        return r;
    spec = spec_to_json(&c->spec);
    r = spec ? add_row(c, spec, &row, e) : err_oom(e);
    if (r == 0)
        r = store_set_project(c->ctx->store, row.id, c->project.path, c->project.remote, e);
    if (r == 0)
        r = box_new_take(c->ctx, &row, &box, e);
    if (r == 0)
        box->spec.engine_facts = json_incref(c->spec.engine_facts);
    if (r == 0 && c->opts->from)
        r = take_snapshot(c, box, e);
    if (r == 0)
        r = bringup_run_locked(box, c->opts, c->deadline_mono_ms, &c->report, e);
    if (r < 0) {
        (void)bh_box_free(box);
        return r;
    }
    box->from = NULL;
    *ret = box;
    return 0;
}

/* ---- one that is there ---- */

/* Restarts the coding agent if it does not answer. */
static int ensure_agent(struct creation *c, struct bh_box *box, struct err *e)
{
    struct client *client = NULL;
    int r;

    if (box->row.state == BH_STATE_ERROR)
        return bringup_run_locked(box, NULL, c->deadline_mono_ms, &c->report, e);
    if (!box_has_agent(box) || (c->opts->defer_agent && !box_agent_was_started(box)))
        return 0;
    r = box_client(box, &client, e);
    if (r == 0 && bootstrap_health(c->ctx, box->dir, client, AGENT_HEALTH_MS, NULL) == 0)
        return 0;
    return r < 0 ? r : bringup_agent_locked(box, c->deadline_mono_ms, &c->report, e);
}

/* Without a time of this call, the box's own. */
static int extend_lease_of_box(struct creation *c, struct bh_box *box, struct err *e)
{
    bool is_asked = c->spec.asked & SPEC_ASKED_TIMEOUT;
    int64_t ttl_ms = is_asked ? c->spec.timeout_ms : box->spec.timeout_ms;

    return control_call_take(
        c->ctx, box->row.id,
        json_pack("{s:s, s:I}", "op", "extend", "until_ms", (json_int_t)(clock_real_ms() + ttl_ms)),
        CONTROL_MS, NULL, e);
}

/* The directory or URL that the box is for. Borrowed. */
static const char *row_project_text(const struct box_row *row)
{
    if (!row->project)
        return "";
    return *row->project ? row->project : row->remote;
}

/* A box without a recorded project (an older store) becomes this project's. A box that is for
 * no project serves whoever gives its name. */
static int check_project(struct creation *c, struct bh_box *box, struct err *e)
{
    const struct box_row *row = &box->row;
    bool asks = *c->project.path || *c->project.remote;
    bool is_known = row->project && (*row->project || *row->remote);

    if (!asks || (is_known && project_has_box(&c->project, row->project, row->remote)))
        return 0;
    if (!row->project) {
        ctx_progress(c->ctx, "warning", 0, 0, false,
                     "the box '%s' did not remember its project: from now on it is for '%s'",
                     row->name, *c->project.path ? c->project.path : c->project.remote);
        return store_set_project(c->ctx->store, row->id, c->project.path, c->project.remote, e);
    }
    if (!is_known)
        return 0;
    return err_field(e, ERR_PRECONDITION, "project",
                     "project: the box '%s' is for '%.200s', not '%.200s': give this one another "
                     "name, or start that one with 'bellhop start %s'",
                     row->name, row_project_text(row),
                     *c->project.path ? c->project.path : c->project.remote, row->name);
}

/* -ERR_NOT_FOUND: it was the rest of a box and has been removed. */
static int take_existing(struct creation *c, struct box_row *row, struct bh_box **ret,
                         struct err *e)
{
    bool no_resume = c->ctx->no_resume;
    struct bh_box *box = NULL;
    bool is_gone = false;
    int r = box_new_take(c->ctx, row, &box, e);

    if (r == 0)
        r = bringup_settle_locked(box, &is_gone, e);
    if (r == 0 && is_gone)
        r = -ERR_NOT_FOUND;
    if (r == 0)
        r = check_project(c, box, e);
    if (r == 0)
        r = spec_compare(&box->spec, &c->spec, e);
    if (r == 0) {
        c->ctx->no_resume = false; /* `up` always starts a box */
        r = bringup_back_locked(box, c->opts, c->deadline_mono_ms, &c->report, e);
        c->ctx->no_resume = no_resume;
        is_gone = r == -ERR_NOT_FOUND && box_reload(box, NULL) == -ERR_NOT_FOUND;
    }
    if (r == 0 && c->opts->key)
        r = store_add_key(c->ctx->store, box->row.id, c->opts->key, e);
    if (r == 0)
        r = ensure_agent(c, box, e);
    if (r == 0)
        r = extend_lease_of_box(c, box, e);
    if (r == 0)
        r = box_reload(box, e);
    if (r < 0) {
        (void)bh_box_free(box);
        return r == -ERR_NOT_FOUND && !is_gone ? -ERR_ABORTED : r;
    }
    *ret = box;
    return 0;
}

/* ---- its name ---- */

/* Finds the row of that name. No row is no error. */
static int find_row(struct creation *c, const char *name, bool *ret_is_there, struct box_row *ret,
                    struct err *e)
{
    int r = store_find(c->ctx->store, name, ret, e);

    *ret_is_there = r == 0;
    return r == -ERR_NOT_FOUND ? 0 : r;
}

/* Can a box of that name be this project's? is_sure: it must exist and say so. */
static int try_name(struct creation *c, const char *name, bool is_sure, bool *ret_ok, struct err *e)
{
    struct box_row row = {0};
    bool is_there;
    int r = find_row(c, name, &is_there, &row, e);

    *ret_ok = is_there ? project_has_box(&c->project, row.project, row.remote) &&
                             (!is_sure || row.project)
                       : !is_sure;
    box_row_done(&row);
    return r;
}

/* Takes the name of the project's box, else the first name that no other project's box has. */
static int choose_name(struct creation *c, struct err *e)
{
    for (size_t i = 0; i < 2 * PROJECT_N_NAMES; i++) {
        bool ok = false;
        int r;

        project_name(&c->project, i % PROJECT_N_NAMES, c->own_name);
        r = try_name(c, c->own_name, i < PROJECT_N_NAMES, &ok, e);
        if (r < 0)
            return r;
        if (ok) {
            c->name = c->own_name;
            return 0;
        }
    }
    return err_field(e, ERR_EXISTS, "name",
                     "name: boxes of other projects have '%s' and its variants", c->project.base);
}

/* ---- its key ---- */

/* The name of the box that has the key. *ret_name is NULL: none has. */
static int find_key(struct creation *c, char **ret_name, struct err *e)
{
    struct box_row row = {0};
    int r = store_find_key(c->ctx->store, c->opts->key, &row, e);

    if (row.name)
        row.name[strcspn(row.name, ".")] = '\0'; /* it may have been set aside (recreate.h) */
    *ret_name = TAKE(row.name);
    box_row_done(&row);
    return r == -ERR_NOT_FOUND ? 0 : r;
}

/* "key-" and 32 digits of a hash: the same for everybody who asks at once. */
static void key_name(const char *key, char out[PROJECT_NAME_BYTES])
{
    struct sha256_ctx sha;
    uint8_t digest[SHA256_DIGEST_SIZE];
    size_t n = (size_t)snprintf(out, PROJECT_NAME_BYTES, "key-");

    sha256_init(&sha);
    sha256_update(&sha, strlen(key), (const uint8_t *)key);
    sha256_digest(&sha, sizeof(digest), digest);
    for (size_t i = 0; i < KEY_NAME_DIGITS / 2; i++, n += 2)
        (void)snprintf(out + n, PROJECT_NAME_BYTES - n, "%02x", digest[i]);
}

static int refuse_key(const struct creation *c, const char *name, struct err *e)
{
    return err_field(e, ERR_EXISTS, "key", "key: the box '%s' has the key '%.64s'", name,
                     c->opts->key);
}

/* Takes the name of the key's box, else the caller's, else one made of the key. */
static int choose_key_name(struct creation *c, struct err *e)
{
    _cleanup_free_ char *name = NULL;
    int r = find_key(c, &name, e);

    if (r < 0)
        return r;
    if (name && c->opts->name && !str_eq(name, c->opts->name))
        return refuse_key(c, name, e);
    if (name)
        (void)snprintf(c->own_name, sizeof(c->own_name), "%s", name);
    else
        key_name(c->opts->key, c->own_name);
    c->name = c->opts->name ? c->opts->name : c->own_name;
    return 0;
}

/* With the lock of c->name. -ERR_ABORTED: the key came to another box meanwhile, or left this one;
 * choose another name. */
static int check_key(struct creation *c, struct err *e)
{
    _cleanup_free_ char *name = NULL;
    char hashed[PROJECT_NAME_BYTES];
    int r = find_key(c, &name, e);

    if (r < 0)
        return r;
    key_name(c->opts->key, hashed);
    if (name ? str_eq(name, c->name) : c->opts->name || str_eq(hashed, c->name))
        return 0;
    if (c->opts->name)
        return refuse_key(c, name, e);
    return err_field(e, ERR_ABORTED, "name", "the key '%.64s' was taken or freed meanwhile",
                     c->opts->key);
}

static void say_name(struct creation *c)
{
    struct box_row row = {0};
    bool is_there;

    if (!is_own_name(c) || c->opts->key || strcmp(c->name, c->project.base) == 0)
        return;
    if (find_row(c, c->project.base, &is_there, &row, NULL) == 0 && is_there)
        ctx_progress(c->ctx, "warning", 0, 0, false,
                     "the box '%s' is for another project, '%.200s': the one for '%.200s' is '%s'",
                     c->project.base, row_project_text(&row),
                     *c->project.path ? c->project.path : c->project.remote, c->name);
    box_row_done(&row);
}

/* Whoever names an owner never gets a box of another: the daemon's tokens rely on it. */
static int check_owner(const struct creation *c, const struct box_row *row, struct err *e)
{
    const char *want = quota_owner(&c->spec);
    char owner[ACCESS_NAME_BYTES] = "";
    int r = *want ? store_owner_of(c->ctx->store, row->id, owner, e) : 0;

    if (r < 0 || str_eq(want, owner))
        return r;
    return c->opts->key ? err_field(e, ERR_EXISTS, "key", "the key '%.64s' is taken", c->opts->key)
                        : err_field(e, ERR_EXISTS, "name", "the name '%.64s' is taken", row->name);
}

/* Runs with the lock of c->name. -ERR_ABORTED: another command took the name meanwhile; choose
 * another. */
static int create_locked(struct creation *c, struct bh_box **ret, struct err *e)
{
    struct box_row row = {0};
    bool is_there = false;
    int r = c->opts->key ? check_key(c, e) : 0;

    if (r == 0)
        r = find_row(c, c->name, &is_there, &row, e);
    if (r == 0 && is_there)
        r = check_owner(c, &row, e);
    if (r < 0) {
        box_row_done(&row);
        return r;
    }
    if (is_there && is_own_name(c) && !c->opts->key &&
        !project_has_box(&c->project, row.project, row.remote)) {
        box_row_done(&row);
        return err_field(e, ERR_ABORTED, "name", "the name '%s' was taken meanwhile", c->name);
    }
    say_name(c);
    r = is_there ? take_existing(c, &row, ret, e) : -ERR_NOT_FOUND;
    if (r == -ERR_NOT_FOUND)
        r = create_new(c, ret, e);
    /* The lock is that of the name: a command with another name may have taken the key since. */
    if (r == -ERR_EXISTS && c->opts->key && is_own_name(c) && e && str_eq(e->field, "key"))
        return err_field(e, ERR_ABORTED, "name", "the key '%.64s' was taken meanwhile",
                         c->opts->key);
    return r;
}

static int create_box(struct creation *c, struct bh_box **ret, struct err *e)
{
    int r = check_inputs(c, e);

    for (size_t i = 0; r == 0 && i < PROJECT_N_NAMES; i++) {
        _cleanup_close_ int lock = -1;

        r = store_lock_name(c->ctx->store, c->name, c->deadline_mono_ms, c->ctx->cancel_fd, &lock,
                            e);
        if (r < 0)
            return r;
        r = create_locked(c, ret, e);
        if (r != -ERR_ABORTED || !is_own_name(c) || !e || !str_eq(e->field, "name"))
            return r;
        r = c->opts->key ? choose_key_name(c, e) : choose_name(c, e);
    }
    return r < 0 ? r
                 : err_field(e, ERR_ABORTED, "name",
                             "name: other boxes were made meanwhile, try again");
}

/* Builds a missing image before the name lock and the deadline: a build takes long. A box that
 * exists has its image. */
static int settle_image(struct creation *c, struct err *e)
{
    struct box_row row = {0};
    int r;

    if (!needs_image(&c->spec))
        return 0;
    r = store_find(c->ctx->store, c->name, &row, e);
    box_row_done(&row);
    if (r != -ERR_NOT_FOUND)
        return r;
    r = check_boxes(c, e);
    return r < 0 ? r : image_settle(c->ctx, &c->spec, c->opts->host_env, e);
}

static int replace_fact(char **at, const char *text, struct err *e)
{
    char *copy = strdup(text ? text : "");

    if (!copy)
        return err_oom(e);
    free(*at);
    *at = copy;
    return 0;
}

/* The options and the project are those of the snapshot's box, unless others are given. */
static int read_from(struct creation *c, struct bh_create_options *o, struct err *e)
{
    int r = snapshot_find_usable(c->ctx, o->from, &c->from, e);

    if (r == 0)
        r = snapshot_read_options(&c->from, o, &c->from_options, e);
    if (r == 0)
        r = project_read(c->ctx, o, &c->project, e);
    if (r == 0)
        r = replace_fact(&c->project.path, c->from.project, e);
    return r < 0 ? r : replace_fact(&c->project.remote, c->from.remote, e);
}

int bh_create(struct bh_ctx *ctx, const struct bh_create_options *opts, struct bh_box **ret_box,
              struct bh_error *err)
{
    struct bh_create_options o, named;
    struct creation c = {.ctx = ctx, .opts = &o};
    struct err e = {0};
    int r = options_copy(&o, sizeof(o), opts, &e);

    /* With a daemon of this state directory the work is done here, too: it reads the caller's files and variables, and
     * ends with the caller. */
    if (r == 0 && ctx->daemon && !ctx->daemon_is_own)
        return ctx_fail(err, remote_create(ctx, &o, ret_box, &e), &e);
    if (r == 0)
        r = ctx_open_store(ctx, &e);
    if (r == 0)
        r = o.from ? read_from(&c, &o, &e) : project_read(ctx, &o, &c.project, &e);
    c.name = o.name;
    if (r == 0 && o.key)
        r = box_check_key(o.key, &e);
    if (r == 0 && o.key)
        r = choose_key_name(&c, &e);
    else if (r == 0 && !o.name && *c.project.base)
        r = choose_name(&c, &e);
    named = o; /* spec_from_options() checks the name, also one that was chosen */
    named.name = c.name;
    if (r == 0)
        r = spec_from_options(&named, &c.spec, &e);
    if (r == 0)
        r = limits_check_request(ctx->limits, &c.spec, &e);
    if (r == 0 && o.from)
        r = replace_fact(&c.spec.image_dir, c.from_options.spec.image_dir, &e);
    if (r == 0 && o.from && c.from.is_temporary) /* a fork is made where its box is */
        r = replace_fact(&c.spec.engine, c.from_options.spec.engine, &e);
    if (r == 0 && !o.from)
        r = settle_image(&c, &e);
    if (r == 0) {
        c.deadline_mono_ms = bringup_deadline(ctx, o.start_timeout_ms);
        r = create_box(&c, ret_box, &e);
    }
    r = ctx_fail(err, r, &e);
    if (r < 0 && err && c.report.step[0]) {
        (void)snprintf(err->step, sizeof(err->step), "%s", c.report.step);
        (void)snprintf(err->detail, sizeof(err->detail), "%s", c.report.log ? c.report.log : "");
    }
    project_done(&c.project);
    spec_done(&c.spec);
    snapshot_options_done(&c.from_options);
    snapshot_row_done(&c.from);
    free(c.report.log);
    return r;
}
