#include "lib/image/image_agents.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "common/buf.h"
#include "common/cleanup.h"
#include "common/io.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/recipe/npm.h"
#include "lib/recipe/recipe.h"

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

int image_agents_write(struct bh_ctx *ctx, const struct template *t, const char *dir,
                       int64_t deadline_mono_ms, struct err *e)
{
    _cleanup_free_ char *from = path_join(dir, "from");
    struct npm *npm = NULL;
    int r = from ? npm_new(ctx, deadline_mono_ms, &npm, e) : err_oom(e);

    if (r == 0)
        r = write_agent_list(ctx, npm, t, dir, e);
    (void)npm_free(npm);
    if (r == 0 && t->from)
        r = image_agents_write(ctx, t->from, from, deadline_mono_ms, e);
    return r;
}
