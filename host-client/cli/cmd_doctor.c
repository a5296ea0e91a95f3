#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "cli/cli.h"
#include "common/cleanup.h"
#include "common/path.h"
#include "common/str.h"
#include "lib/provider/provider.h"

#define DISK_LOW_BYTES (2ull << 30)

struct doctor {
    struct cli *cli;
    json_t *checks;
    bool failed;
};

static void check_take(struct doctor *d, bool ok, bool needed, const char *name, const char *text)
{
    const char *state = ok ? "ok" : needed ? "missing" : "optional";

    d->failed |= needed && !ok;
    if (d->cli->json)
        (void)json_array_append_new(
            d->checks, json_pack("{s:s, s:s, s:s}", "name", name, "state", state, "text", text));
    else
        (void)printf("%-9s %-22s %s\n", state, name, text);
}

static void check_file(struct doctor *d, const char *name, const char *path, const char *mend)
{
    struct stat st;
    bool ok = path && stat(path, &st) == 0;

    check_take(d, ok, true, name, ok ? path : mend);
}

/* Optional: the first 'up' builds a missing image, which takes minutes. */
static void check_image(struct doctor *d)
{
    _cleanup_free_ char *path = path_join(d->cli->opts.image_dir, "slim/manifest.json");
    bool ok = path && access(path, F_OK) == 0;

    check_take(d, ok, false, "image slim",
               ok ? path
                  : "not built yet: 'bellhop image build slim', or the first 'bellhop up', does");
}

static void doctor_provider(void *arg, const struct bh_provider_info *i)
{
    struct doctor *d = arg;
    char name[48];
    bool is_default = strcmp(i->name, provider_at(0)->name) == 0;

    (void)snprintf(name, sizeof(name), "provider %s", i->name);
    check_take(d, i->usable, is_default, name,
               !i->usable    ? i->why
               : *i->engine  ? i->engine
               : *i->runtime ? i->runtime
                             : i->summary);
}

/* Searches the directories that the library searches, not the caller's PATH. */
static bool is_installed(const char *program)
{
    static const char *const dirs[] = {"/usr/local/sbin", "/usr/local/bin", "/usr/sbin",
                                       "/usr/bin",        "/sbin",          "/bin"};

    for (size_t i = 0; i < N_ELEMENTS(dirs); i++) {
        _cleanup_free_ char *file = path_join(dirs[i], program);

        if (file && access(file, X_OK) == 0)
            return true;
    }
    return false;
}

static void check_disk(struct doctor *d, const char *dir)
{
    struct statvfs st;
    char size[24], text[64];
    uint64_t bytes;

    if (statvfs(dir, &st) < 0)
        return;
    bytes = (uint64_t)st.f_bavail * st.f_frsize;
    (void)snprintf(text, sizeof(text), "%s free", str_format_size(bytes, size, sizeof(size)));
    check_take(d, bytes >= DISK_LOW_BYTES, false, "disk", text);
}

static int run_doctor(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    struct doctor d = {.cli = c, .checks = json_array()};
    int r;

    (void)args;
    (void)operands;
    check_file(&d, "guest agent", c->opts.agent_path, "build it with 'make'");
    check_file(&d, "monitor", c->opts.monitor_path, "build it with 'make'");
    check_file(&d, "recipes", c->opts.recipe_dir, "set BELLHOP_RECIPES to their folder");
    check_image(&d);
    check_take(&d, is_installed("slirp4netns") || is_installed("pasta"), true, "network user",
               is_installed("slirp4netns") ? "slirp4netns"
               : is_installed("pasta")     ? "pasta"
                                           : "install slirp4netns or pasta");
    check_take(&d, is_installed("nft"), true, "nft",
               is_installed("nft") ? "found" : "install nftables");
    check_take(&d, is_installed("git"), false, "git",
               is_installed("git") ? "found" : "install git");
    check_disk(&d, c->opts.state_dir);
    r = bh_providers(c->ctx, doctor_provider, &d, err);
    if (r < 0) {
        json_decref(d.checks);
        return r;
    }
    if (c->json)
        (void)cli_print_json_take(json_pack("{s:b, s:o}", "ok", !d.failed, "checks", d.checks));
    else
        json_decref(d.checks);
    return d.failed ? EXIT_CLI_UNAVAILABLE : EXIT_CLI_OK;
}

const struct cli_command cmd_doctor = {
    .name = "doctor",
    .group = "Machine",
    .operands = "",
    .summary = "check what this machine has and lacks for boxes",
    .examples = "  bellhop doctor\n",
    .flags = CLI_HERE,
    .run = run_doctor,
};
