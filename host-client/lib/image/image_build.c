/* image_build: runs image/build.sh for a template and turns its failure into an error that
 * names the field. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "common/buf.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/image/image.h"
#include "lib/image/template.h"
#include "lib/recipe/npm.h"
#include "lib/recipe/recipe.h"
#include "lib/util/beneath.h"
#include "lib/util/hostcmd.h"

#define BUILD_TIMEOUT_MS (60LL * 60 * 1000)
#define BUILD_GRACE_MS 20000 /* the script removes its unfinished files */
#define FORMS_MAX 16

/* ---- the coding agents ---- */

#define AGENTS_MAX_BYTES (64 * 1024)

/* Images go to other machines: a build for any processor is preferred. */
static const struct recipe_npm *choose_package(const struct recipe *r, const char *arch)
{
    const struct recipe_npm *found = NULL;

    for (size_t i = 0; i < r->n_npm; i++) {
        if (r->npm[i].arch[0] && strcmp(r->npm[i].arch, arch) != 0)
            continue;
        if (!r->npm[i].cpu[0])
            return &r->npm[i];
        found = found ? found : &r->npm[i];
    }
    return found;
}

static int fetch_package(struct npm *npm, const struct recipe *recipe, const char *arch, char **ret,
                         struct err *e)
{
    bool is_own = strcmp(recipe->version, recipe->own_version) == 0;
    const struct recipe_npm *package;

    if (recipe->npm_lock) {
        _cleanup_free_ char *lock = path_join(recipe->dir, recipe->npm_lock);

        return lock ? npm_fetch_tree(npm, lock, is_own ? NULL : recipe->version, arch, ret, e)
                    : err_oom(e);
    }
    package = choose_package(recipe, arch);
    if (!package)
        return err_field(e, ERR_UNIMPLEMENTED, "bellhop.agents",
                         "'%s' has nothing that can be baked into an image for %s", recipe->name,
                         arch);
    return npm_fetch(npm, package->package, recipe->version,
                     is_own && package->integrity[0] ? package->integrity : NULL, ret, e);
}

/*
 * The check's argv without the last word ("--version"), quoted for a shell. A bare program name is
 * replaced by its path in the package, since the recipe's PATH does not apply there.
 */
static int add_command(const struct recipe *recipe, const char *install, struct buf *out,
                       struct err *e)
{
    const struct recipe_vars vars = {.version = recipe->version, .install = install};
    size_t n = json_array_size(recipe->check_argv);
    int r = 0;

    for (size_t i = 0; r == 0 && i + 1 < n; i++) {
        _cleanup_free_ char *word = NULL;
        bool is_alone;

        r = recipe_expand(json_string_value(json_array_get(recipe->check_argv, i)), &vars, &word,
                          e);
        if (r < 0)
            return r;
        is_alone = n == 2 && !strchr(word, '/');
        r = buf_addf(out, e, " %s%s%s", is_alone ? install : "", is_alone ? "/package/bin/" : "",
                     word);
    }
    return r;
}

static int add_agent(struct bh_ctx *ctx, struct npm *npm, const struct template *t,
                     const char *agent, struct buf *out, struct err *e)
{
    _cleanup_free_ char *tarball = NULL;
    _cleanup_free_ char *install = NULL;
    struct recipe recipe = {0};
    struct utsname machine;
    int r = recipe_load(ctx->recipe_dir, agent, &recipe, e);

    if (r < 0)
        return r;
    (void)uname(&machine);
    r = fetch_package(npm, &recipe, machine.machine, &tarball, e);
    if (r == 0 && asprintf(&install, "/home/%s/.bellhop/agents/%s-%s", t->user, recipe.name,
                           recipe.version) < 0)
        r = err_oom(e);
    if (r == 0 && strpbrk(tarball, " \n"))
        r = err_field(e, ERR_INVALID, "cache_dir", "the cache's path has a space: '%s'", tarball);
    if (r == 0)
        r = buf_addf(out, e, "%s %s %s", recipe.name, recipe.version, tarball);
    if (r == 0)
        r = add_command(&recipe, install, out, e);
    if (r == 0)
        r = buf_adds(out, "\n", e);
    recipe_done(&recipe);
    return r;
}

static int write_agent_list(struct bh_ctx *ctx, struct npm *npm, const struct template *t,
                            const char *dir, struct err *e)
{
    _cleanup_free_ char *path = path_join(dir, "agents");
    struct buf text;
    int r = path ? 0 : err_oom(e);

    buf_init(&text, AGENTS_MAX_BYTES);
    for (char *const *p = t->agents; r == 0 && *p; p++) {
        ctx_progress(ctx, "image", 0, 0, false, "fetching %s for the image", *p);
        r = add_agent(ctx, npm, t, *p, &text, e);
    }
    if (r == 0)
        r = io_write_file(AT_FDCWD, path, text.data ? text.data : "", text.len, 0644, false, e);
    buf_done(&text);
    return r;
}

/*
 * Fetches the coding agents that a template bakes in, as the bootstrap would. Writes <dir>/agents
 * with a line "NAME VERSION TARBALL COMMAND..." for each of t->agents: TARBALL is a verified file of
 * the cache, COMMAND runs the agent in the box. Does the same for each dir/from.
 */
static int write_agents(struct bh_ctx *ctx, const struct template *t, const char *dir,
                        int64_t deadline_mono_ms, struct err *e)
{
    _cleanup_free_ char *from = path_join(dir, "from");
    struct npm *npm = NULL;
    int r = from ? npm_new(ctx, deadline_mono_ms, &npm, e) : err_oom(e);

    if (r == 0)
        r = write_agent_list(ctx, npm, t, dir, e);
    (void)npm_free(npm);
    if (r == 0 && t->from)
        r = write_agents(ctx, t->from, from, deadline_mono_ms, e);
    return r;
}

/* ---- build.sh ---- */

/* The script's current step, in its own words. */
struct step {
    struct bh_ctx *ctx;
    int64_t began_mono_ms;
    char text[160];
};

static void report_line(void *arg, const char *line)
{
    struct step *step = arg;

    step->began_mono_ms = clock_mono_ms();
    (void)snprintf(step->text, sizeof(step->text), "%s", line);
    ctx_progress(step->ctx, "image", 0, 0, false, "%s", line);
}

/* Reports the time: minutes of apt or mksquashfs without output look like a hang. */
static void report_time(void *arg)
{
    const struct step *step = arg;

    if (step->text[0])
        ctx_progress(step->ctx, "building", 0, 0, false, "%s (%lld s)", step->text,
                     (long long)(clock_mono_ms() - step->began_mono_ms) / 1000);
}

/* Parses the script's "image: FIELD: TEXT". Some fields have a code that the caller acts on. */
static int read_failure(const char *said, int status, struct err *e)
{
    static const struct {
        const char *field;
        enum err_code code;
    } codes[] = {
        {"network", ERR_UNAVAILABLE}, {"disk", ERR_EXHAUSTED},  {"packages", ERR_NOT_FOUND},
        {"form", ERR_INVALID},        {"agent", ERR_NOT_FOUND},
    };
    enum err_code code = ERR_PRECONDITION;
    char field[32];
    const char *text;
    size_t n;

    if (!str_has_prefix(said, "image: "))
        return err_field(e, ERR_PRECONDITION, "image", "the build ended with status %d%s%.300s",
                         status, *said ? ": " : "", said);
    said += strlen("image: ");
    n = strcspn(said, ":");
    text = n < sizeof(field) && said[n] ? said + n + 1 : said;
    (void)snprintf(field, sizeof(field), "%.*s", n < sizeof(field) ? (int)n : 0, said);
    for (size_t i = 0; i < N_ELEMENTS(codes); i++)
        if (strcmp(codes[i].field, field) == 0)
            code = codes[i].code;
    return err_field(e, code, field, "%s", text + strspn(text, " "));
}

static int push_env(char ***env, const char *name, const char *value, struct err *e)
{
    _cleanup_free_ char *line = NULL;

    if (!value)
        return 0;
    return asprintf(&line, "%s=%s", name, value) < 0 ? err_oom(e) : strv_push(env, line, e);
}

/* Is it a variable that tells how the build reaches its registries? */
static bool is_way_out(const char *variable)
{
    static const char *const names[] = {
        "PIP_INDEX_URL=", "PIP_EXTRA_INDEX_URL=", "PIP_TRUSTED_HOST="};

    for (size_t i = 0; i < N_ELEMENTS(names); i++)
        if (str_has_prefix(variable, names[i]))
            return true;
    return hostcmd_is_proxy_variable(variable);
}

static int make_env(const struct bh_ctx *ctx, const struct image_build *b, char ***ret,
                    struct err *e)
{
    const struct {
        const char *name, *value;
    } all[] = {
        {"BELLHOP_IMAGES", ctx->image_dir},     {"BELLHOP_IMAGE_CACHE", ctx->image_cache_dir},
        {"BELLHOP_AGENT", ctx->agent_path},     {"npm_config_registry", ctx->npm_registry},
        {"IMAGE_FRESH", b->fresh ? "1" : NULL},
    };
    int r = 0;

    for (size_t i = 0; r == 0 && i < N_ELEMENTS(all); i++)
        r = push_env(ret, all[i].name, all[i].value, e);
    for (const char *const *p = b->host_env; r == 0 && p && *p; p++)
        if (is_way_out(*p))
            r = strv_push(ret, *p, e);
    return r;
}

static int run_script(struct bh_ctx *ctx, const struct image_build *b, const char *def,
                      int64_t deadline, struct err *e)
{
    _cleanup_free_ char *script = path_join(ctx->template_dir, "build.sh");
    _cleanup_strv_ char **env = NULL;
    _cleanup_strv_ char **argv = NULL;
    struct step step = {.ctx = ctx};
    struct hostcmd cmd = {.out_fd = -1,
                          .line = report_line,
                          .line_arg = &step,
                          .tick = report_time,
                          .grace_ms = BUILD_GRACE_MS,
                          .cancel_fd = ctx->cancel_fd,
                          .debug = &ctx->debug,
                          .deadline_mono_ms = deadline};
    char said[HOSTCMD_SAID_BYTES] = "";
    int status = -1;
    int r = script ? strv_push(&argv, script, e) : err_oom(e);

    if (r == 0)
        r = strv_push(&argv, def, e);
    for (size_t i = 0; r == 0 && b->forms && b->forms[i]; i++)
        r = strv_push(&argv, b->forms[i], e);
    if (r == 0)
        r = make_env(ctx, b, &env, e);
    if (r < 0)
        return r;
    cmd.argv = (const char *const *)argv;
    cmd.env = (const char *const *)env;
    cmd.said = said;
    r = hostcmd_run(&cmd, &status, e);
    return r == -ERR_PRECONDITION ? read_failure(said, status, e) : r;
}

/* Makes a directory beside the images, on their disk. Its name has our pid: build.sh removes
 * the directory of a process that was killed. */
static int make_definition(struct bh_ctx *ctx, const struct template *t, int64_t deadline,
                           char **ret, struct err *e)
{
    _cleanup_free_ char *dir = NULL;
    int r = io_mkdir_p(ctx->image_dir, 0755, e);

    if (r < 0)
        return err_at(e, r, "image_dir");
    if (asprintf(&dir, "%s/.%s.def.%d.XXXXXX", ctx->image_dir, t->name, (int)getpid()) < 0)
        return err_oom(e);
    if (!mkdtemp(dir))
        return err_at(e, err_sys(e, errno, "make '%s'", dir), "image_dir");
    r = template_write(t, dir, e);
    if (r == 0)
        r = write_agents(ctx, t, dir, deadline, e);
    if (r < 0)
        (void)dirtree_remove(dir, NULL);
    else
        *ret = TAKE(dir);
    return r;
}

static int check_forms(const char *const *forms, struct err *e)
{
    static const char *const known[] = {"squashfs", "dir", "tar", "oci", "vm", "dockerfile"};

    for (size_t i = 0; forms && forms[i]; i++) {
        size_t k = 0;

        while (k < N_ELEMENTS(known) && strcmp(known[k], forms[i]) != 0)
            k++;
        if (k == N_ELEMENTS(known) || i == FORMS_MAX)
            return err_field(e, ERR_INVALID, "form",
                             "there is no form '%.40s': squashfs, dir, tar, oci, vm or dockerfile",
                             forms[i]);
    }
    return 0;
}

/* Announces a build that has work to do; an image that is up to date is only verified. */
static void announce_build(struct bh_ctx *ctx, const struct image_build *b,
                           const struct template *t)
{
    _cleanup_free_ char *link = NULL;
    bool is_there = asprintf(&link, "%s/%s:%s", ctx->image_dir, t->name, t->version) >= 0 &&
                    access(link, F_OK) == 0 && !b->fresh;

    ctx_progress(ctx, "image", 0, 0, false, "%s the image %s:%s",
                 is_there ? "looking through" : "building", t->name, t->version);
}

static int refuse_other_user(const struct image_build *b, struct err *e)
{
    const char *form = b->forms ? b->forms[0] : NULL;

    return err_field(e, ERR_DENIED, "image",
                     "building an image needs root: 'sudo bellhop image build %.100s%s%s' makes it",
                     b->ref, form ? " --form " : "", form ? form : "");
}

int image_build(struct bh_ctx *ctx, const struct image_build *b, char **ret_dir, struct err *e)
{
    int64_t deadline = clock_mono_ms() + (b->timeout_ms > 0 ? b->timeout_ms : BUILD_TIMEOUT_MS);
    _cleanup_template_ struct template *t = NULL;
    _cleanup_free_ char *def = NULL;
    _cleanup_free_ char *link = NULL;
    int r = check_forms(b->forms, e);

    if (r == 0)
        r = template_find(ctx, b->ref, &t, e);
    if (r < 0)
        return r;
    if (geteuid() != 0)
        return refuse_other_user(b, e);
    announce_build(ctx, b, t);
    r = make_definition(ctx, t, deadline, &def, e);
    if (r < 0)
        return r;
    r = run_script(ctx, b, def, deadline, e);
    (void)dirtree_remove(def, NULL);
    if (r < 0)
        return r;
    ctx_progress(ctx, "image", 0, 0, true, "the image %s:%s is there", t->name, t->version);
    if (!ret_dir)
        return 0;
    if (asprintf(&link, "%s/%s:%s", ctx->image_dir, t->name, t->version) < 0)
        return err_oom(e);
    *ret_dir = realpath(link, NULL);
    return *ret_dir ? 0 : err_at(e, err_sys(e, errno, "image '%s'", link), "image");
}
