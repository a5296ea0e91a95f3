#include "lib/project/project.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/path.h"
#include "lib/util/hostcmd.h"

#define GIT_MS 5000
#define REMOTE_BYTES 4096

/* ---- names ---- */

/* Makes a box's name of a word: lower case, everything else becomes a dash. */
static void name_from_word(const char *word, size_t len, char out[PROJECT_NAME_BYTES])
{
    size_t n = 0;

    for (; len && n < PROJECT_NAME_BYTES - 1; word++, len--) {
        char ch = *word >= 'A' && *word <= 'Z' ? (char)(*word - 'A' + 'a') : *word;
        bool plain = (ch >= 'a' && ch <= 'z') || (ch >= '0' && ch <= '9');

        if (plain)
            out[n++] = ch;
        else if (n && out[n - 1] != '-')
            out[n++] = '-';
    }
    while (n && out[n - 1] == '-')
        n--;
    out[n] = '\0';
    if (!n)
        (void)snprintf(out, PROJECT_NAME_BYTES, "box");
}

/* The length of the URL's part that identifies the repository: without "?...", and without
 * slashes and ".git" at the end. */
static size_t url_length(const char *url)
{
    size_t end = strcspn(url, "?#");

    while (end && url[end - 1] == '/')
        end--;
    if (end > 4 && strncmp(url + end - 4, ".git", 4) == 0)
        end -= 4;
    while (end && url[end - 1] == '/')
        end--;
    return end;
}

/* As git clone names the directory: "https://host/org/api.git/" is "api". */
static void name_from_url(const char *url, char out[PROJECT_NAME_BYTES])
{
    size_t end = url_length(url), start = end;

    while (start && url[start - 1] != '/')
        start--;
    name_from_word(url + start, end - start, out);
}

/* FNV-1a: the digits tell projects apart and protect nothing. */
static uint64_t hash_text(const char *text, size_t len)
{
    uint64_t h = 14695981039346656037u;

    for (size_t i = 0; i < len; i++)
        h = (h ^ (unsigned char)text[i]) * 1099511628211u;
    return h ^ h >> 32;
}

void project_name(const struct project *p, size_t i, char out[PROJECT_NAME_BYTES])
{
    static const int n_digits[PROJECT_N_NAMES] = {0, 6, 10, 16};
    int digits = n_digits[i];
    const char *key = *p->path ? p->path : p->remote;
    uint64_t h = hash_text(key, *p->path ? strlen(key) : url_length(key));
    int kept = (int)strlen(p->base);

    if (!digits) {
        (void)snprintf(out, PROJECT_NAME_BYTES, "%s", p->base);
        return;
    }
    if (kept > PROJECT_NAME_BYTES - 2 - digits)
        kept = PROJECT_NAME_BYTES - 2 - digits;
    (void)snprintf(out, PROJECT_NAME_BYTES, "%.*s-%0*" PRIx64, kept, p->base, digits,
                   h & (UINT64_MAX >> (64 - 4 * digits)));
}

/* ---- what it is ---- */

/* Removes "user:word@" from a URL: the store keeps no secrets. */
static char *without_user(const char *url)
{
    const char *host = strstr(url, "://");
    const char *end, *at;
    char *out = NULL;

    host = host ? host + 3 : NULL;
    end = host ? host + strcspn(host, "/?#") : NULL;
    at = host ? memrchr(host, '@', (size_t)(end - host)) : NULL;
    if (!at)
        return strdup(url);
    return asprintf(&out, "%.*s%s", (int)(host - url), url, at + 1) < 0 ? NULL : out;
}

/* The directory may be hostile: no program that its configuration names is run. "": it has no
 * remote, or there is no git. */
static char *ask_remote(struct bh_ctx *ctx, const char *dir)
{
    static const char *const argv[] = {
        "git",     "-c",    "safe.directory=*",  "-c", "core.fsmonitor=false", "config",
        "--local", "--get", "remote.origin.url", NULL};
    static const char *const env[] = {"GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0", NULL};
    _cleanup_buf_ struct buf out;
    struct hostcmd cmd = {.argv = argv,
                          .env = env,
                          .cwd = dir,
                          .out_fd = -1,
                          .out = &out,
                          .cancel_fd = ctx->cancel_fd,
                          .debug = &ctx->debug,
                          .deadline_mono_ms = clock_mono_ms() + GIT_MS};

    buf_init(&out, REMOTE_BYTES);
    if (hostcmd_run(&cmd, NULL, NULL) < 0 || !out.len)
        return strdup("");
    out.data[strcspn(out.data, "\n")] = '\0';
    return without_user(out.data);
}

int project_read(struct bh_ctx *ctx, const struct bh_create_options *opts, struct project *ret,
                 struct err *e)
{
    struct project p = {0};

    if (opts->project)
        p.path = realpath(opts->project, NULL);
    if (opts->repo_url) {
        p.remote = without_user(opts->repo_url);
        name_from_url(opts->repo_url, p.base);
    } else if (p.path) {
        const char *last = path_name(p.path);

        p.remote = ask_remote(ctx, p.path);
        name_from_word(last, strlen(last), p.base);
    } else {
        p.remote = strdup("");
        if (opts->project)
            name_from_word(opts->project, 0, p.base);
    }
    if (!p.path)
        p.path = strdup("");
    if (!p.path || !p.remote) {
        project_done(&p);
        return err_oom(e);
    }
    *ret = p;
    return 0;
}

void project_done(struct project *p)
{
    free(p->path);
    free(p->remote);
    memset(p, 0, sizeof(*p));
}

bool project_has_box(const struct project *p, const char *path, const char *remote)
{
    size_t len = url_length(p->remote);

    if (!path)
        return true;
    if (*p->path || *path)
        return strcmp(p->path, path) == 0;
    return len == url_length(remote) && strncmp(p->remote, remote, len) == 0;
}
