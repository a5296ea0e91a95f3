#include "lib/project/repo.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/io.h"
#include "common/jsonx.h"

#define TOKEN_BYTES (64 * 1024)
#define CLEAN_MS 10000
#define GIT_TEXT_MAX 300

/*
 * $1 is the URL, $2 the directory, $3 the token's file or "". The credential helper is a shell
 * function: it prints the token's file when git asks.
 */
static const char clone_script[] =
    "set -e\n"
    "[ -z \"$3\" ] || trap 'rm -f \"$3\"' EXIT\n"
    "mkdir -p \"$2\"\n"
    "if [ -n \"$3\" ]; then\n"
    "  BELLHOP_TOKEN_FILE=$3 GIT_TERMINAL_PROMPT=0 git -c credential.helper= \\\n"
    "    -c credential.helper='!f() { echo username=x-access-token; "
    "echo \"password=$(cat \"$BELLHOP_TOKEN_FILE\")\"; }; f' \\\n"
    "    clone --quiet -- \"$1\" \"$2\"\n"
    "else\n"
    "  GIT_TERMINAL_PROMPT=0 git clone --quiet -- \"$1\" \"$2\"\n"
    "fi\n";

static int read_token(const char *path, char **ret, size_t *ret_len, struct err *e)
{
    int r = io_read_file(AT_FDCWD, path, TOKEN_BYTES, ret, ret_len, e);

    if (r < 0)
        return err_at(e, r, "git-token-file");
    *ret_len = strcspn(*ret, "\r\n");
    (*ret)[*ret_len] = '\0';
    return *ret_len
               ? 0
               : err_field(e, ERR_INVALID, "git-token-file", "git-token-file: '%s' is empty", path);
}

static void token_free(char *token, size_t len)
{
    if (token)
        explicit_bzero(token, len);
    free(token);
}

int repo_check_token(const char *token_file, struct err *e)
{
    char *token = NULL;
    size_t len = 0;
    int r = read_token(token_file, &token, &len, e);

    token_free(token, len);
    return r;
}

static int put_token(struct client *c, const char *token_file, const char *path, int64_t deadline,
                     struct err *e)
{
    char *token = NULL;
    size_t len = 0;
    int r = read_token(token_file, &token, &len, e);

    if (r == 0)
        r = client_put_file(c, path, token, len, 0600, NULL, deadline, e);
    token_free(token, len);
    return r;
}

/* The length without git's trailing line feeds. */
static size_t text_len(const char *text, size_t max)
{
    size_t len = strnlen(text, max);

    while (len && text[len - 1] == '\n')
        len--;
    return len;
}

static int run_clone(const struct repo_request *req, const char *token_path, struct err *e)
{
    _cleanup_json_ json_t *params = NULL;
    _cleanup_json_ json_t *reply = NULL;
    const char *text;
    int r;

    params = json_pack("{s:[s,s,s,s,s,s,s], s:O, s:s}", "argv", "sh", "-c", clone_script, "sh",
                       req->url, req->dest, token_path, "env", req->env, "cwd", "/");
    if (!params)
        return err_oom(e);
    if (req->deadline_mono_ms)
        (void)json_object_set_new(params, "timeout_ms",
                                  json_integer(clock_until_ms(req->deadline_mono_ms)));
    r = client_call(req->client, RPC_exec_run, params, req->deadline_mono_ms, &reply, e);
    if (r < 0)
        return r;
    if (json_integer_value(json_object_get(json_object_get(reply, "exit"), "code")) == 0)
        return 0;
    text = json_string_value(json_object_get(json_object_get(reply, "stderr"), "text"));
    text = text ? text : "";
    return err_field(e, ERR_PRECONDITION, "repo", "git clone failed: %.*s",
                     (int)text_len(text, GIT_TEXT_MAX), text);
}

/* The script removes the file itself, unless it was killed or never ran. */
static void remove_token(const struct repo_request *req, const char *path)
{
    json_t *params = json_pack("{s:s}", "path", path);

    (void)client_call(req->cleaner, RPC_fs_remove, params, clock_mono_ms() + CLEAN_MS, NULL, NULL);
    json_decref(params);
}

int repo_clone(const struct repo_request *req, struct err *e)
{
    _cleanup_free_ char *token_path = NULL;
    char nonce[17];
    int r = io_random_hex(8, nonce, e);

    if (r < 0)
        return r;
    ctx_progress(req->ctx, "clone", 0, 0, false, "cloning '%s'", req->url);
    if (asprintf(&token_path, "/tmp/.bellhop-token-%s", nonce) < 0)
        return err_oom(e);
    if (req->token_file)
        r = put_token(req->client, req->token_file, token_path, req->deadline_mono_ms, e);
    if (r == 0)
        r = run_clone(req, req->token_file ? token_path : "", e);
    if (req->token_file)
        remove_token(req, token_path);
    return r;
}
