/* token: makes, lists and revokes the tokens of the daemon. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/str.h"
#include "lib/box/store_access.h"
#include "lib/util/context.h"

struct args {
    const char *scope, *owner, *name;
    int64_t expires_ms;
};

static const char *const scope_values[] = {"read", "use", "admin", NULL};

static const struct cli_option token_options[] = {
    CLI_OPT_VALUES("scope", 0, CLI_STR, scope, "SCOPE",
                   "create: read, use or admin; each has the rights of those before it",
                   scope_values),
    CLI_OPT("owner", 0, CLI_STR, owner, "NAME",
            "create: the token sees and uses the boxes of this owner alone"),
    CLI_OPT("expires", 0, CLI_DURATION, expires_ms, "TIME",
            "create: the token's time to live, such as 30d (default: no end)"),
    CLI_OPT("name", 0, CLI_STR, name, "NAME", "create: a name for lists and for 'token revoke'"),
    {0},
};

static int fail_token(struct bh_error *err, int r, const struct err *e)
{
    return r < 0 ? cli_fail(err, (enum bh_code) - r, e->field, "%s", e->message) : r;
}

/* ---- create ---- */

static int read_token_args(const struct args *a, struct store_token *t, struct err *e)
{
    int r = a->scope ? token_describe(t, a->scope, a->name, a->owner, e)
                     : err_field(e, ERR_INVALID, "scope",
                                 "which rights? --scope read, --scope use or --scope admin");

    if (r == 0 && a->expires_ms > TOKEN_EXPIRES_MAX_MS)
        r = err_field(e, ERR_INVALID, "expires", "expires must be up to 10 years");
    if (r == 0 && a->expires_ms)
        t->expires_ms = clock_real_ms() + a->expires_ms;
    return r;
}

static int create_token(struct cli *c, const struct args *a, char **operands, struct bh_error *err)
{
    struct store_token t = {0};
    char text[TOKEN_TEXT_BYTES];
    struct err e = {0};
    int r = operands[0] ? err_field(&e, ERR_INVALID, "operands",
                                    "'token create' takes no name: "
                                    "--name NAME")
                        : read_token_args(a, &t, &e);

    if (r == 0)
        r = store_make_token(c->ctx->store, &t, text, &e);
    if (r < 0)
        return fail_token(err, r, &e);
    if (c->json) {
        json_t *doc = store_token_json(&t);

        (void)json_object_set_new(doc, "token", json_string(text));
        return cli_print_json_take(doc);
    }
    (void)puts(text);
    if (!c->quiet)
        (void)fputs("The token is not kept and not shown again.\n", stderr);
    return EXIT_CLI_OK;
}

/* ---- ls ---- */

struct token_listing {
    struct cli_table *table;
    json_t *json;
};

static int list_token(void *arg, const struct store_token *t)
{
    struct token_listing *l = arg;
    char expires[CLOCK_TEXT_BYTES] = "never", used[CLOCK_TEXT_BYTES] = "never";

    if (l->json)
        return json_array_append_new(l->json, store_token_json(t)) < 0;
    if (t->expires_ms)
        clock_text(t->expires_ms, expires);
    if (t->used_ms)
        clock_text(t->used_ms, used);
    cli_table_add(l->table, (const char *const[]){t->id, t->name, t->owner,
                                                  token_scope_name(t->scope), expires, used, NULL});
    return 0;
}

static int ls_tokens(struct cli *c, const struct args *a, char **operands, struct bh_error *err)
{
    static const char *const heads[] = {"ID", "NAME", "OWNER", "SCOPE", "EXPIRES", "USED", NULL};
    struct token_listing l = {0};
    struct err e = {0};
    int r;

    (void)a;
    (void)operands;
    if (c->json)
        l.json = json_array();
    else
        l.table = cli_table_new(heads);
    r = fail_token(err, store_list_tokens(c->ctx->store, list_token, &l, &e), &e);
    cli_table_print_free(l.table, c->tty_out);
    if (r == 0 && c->json)
        return cli_print_json_take(json_pack("{s:o}", "tokens", l.json));
    json_decref(l.json);
    return r;
}

/* ---- revoke ---- */

static int revoke_token(struct cli *c, const struct args *a, char **operands, struct bh_error *err)
{
    struct err e = {0};
    int r = operands[0] ? store_revoke_token(c->ctx->store, operands[0], &e)
                        : err_field(&e, ERR_INVALID, "operands", "which token? its id or name");

    (void)a;
    if (r < 0)
        return fail_token(err, r, &e);
    if (c->json)
        return cli_print_json_take(json_pack("{s:s}", "revoked", operands[0]));
    if (!c->quiet)
        (void)puts("revoked");
    return EXIT_CLI_OK;
}

static int run_token(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    static const struct {
        const char *name;
        int (*run)(struct cli *c, const struct args *a, char **operands, struct bh_error *err);
    } verbs[] = {{"create", create_token}, {"ls", ls_tokens}, {"revoke", revoke_token}};

    for (size_t i = 0; i < N_ELEMENTS(verbs); i++)
        if (str_eq(verbs[i].name, operands[0]))
            return verbs[i].run(c, args, operands + 1, err);
    return cli_fail(err, BH_INVALID_ARGUMENT, "operands",
                    "there is no 'token %.40s': create, ls or revoke", operands[0]);
}

const struct cli_command cmd_token = {
    .name = "token",
    .group = "Machine",
    .operands = "create|ls|revoke [TOKEN]",
    .summary = "make, list and revoke the daemon's tokens",
    .details =
        "A request to the daemon over TCP has a token: Authorization: Bearer TOKEN. 'token create' "
        "prints\n"
        "it; the store keeps its hash alone. The scopes: read sees boxes and events; use runs "
        "commands,\n"
        "changes files and states, and makes boxes; admin does everything, for all owners.\n"
        "A token with an owner sees and uses only the boxes with the label owner=NAME, and gives "
        "this\n"
        "label to those that it makes.",
    .examples = "  bellhop token create --scope use --owner ann --expires 30d --name ann-laptop\n"
                "  bellhop token ls\n"
                "  bellhop token revoke ann-laptop\n",
    .options = token_options,
    .args_bytes = sizeof(struct args),
    .min_operands = 1,
    .max_operands = 2,
    .flags = CLI_CHANGES,
    .run = run_token,
};
