#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "common/cleanup.h"
#include "common/io.h"
#include "common/str.h"

#define ENV_FILE_MAX_BYTES (256 * 1024)
#define CPUS_MAX 1000000 /* the library checks the range */

const struct cli_option cli_common_options[] = {
    {"json", 0, CLI_FLAG, offsetof(struct cli, json), NULL, "one JSON document on standard output",
     NULL},
    {"quiet", 'q', CLI_FLAG, offsetof(struct cli, quiet), NULL, "no progress and no hints", NULL},
    {"no-resume", 0, CLI_FLAG, offsetof(struct cli, no_resume), NULL,
     "fail when the box is stopped, instead of starting it", NULL},
    {"raw", 0, CLI_FLAG, offsetof(struct cli, raw), NULL,
     "print names and content of a box as they are, control characters too", NULL},
    {"debug", 0, CLI_FLAG, offsetof(struct cli, debug), NULL,
     "log what is done to standard error, without secrets", NULL},
    {"daemon", 0, CLI_STR, offsetof(struct cli, daemon), "URL",
     "the daemon: http(s)://HOST:PORT, unix:PATH, none or auto (default)", NULL, "BELLHOP_DAEMON"},
    {"token-file", 0, CLI_STR, offsetof(struct cli, token_file), "FILE",
     "the daemon's token, else $BELLHOP_TOKEN", NULL, "BELLHOP_TOKEN_FILE"},
    {"daemon-ca", 0, CLI_STR, offsetof(struct cli, daemon_ca), "FILE",
     "certificates in PEM that https trusts (default: the system's)", NULL, "BELLHOP_DAEMON_CA"},
    {0},
};

/* "1", "0.5", "1.25" -> thousandths. */
int cli_parse_cpus(const char *s, uint32_t *ret, struct err *e)
{
    size_t whole = strcspn(s, ".");
    char digits[4] = "000";
    char head[16];
    uint64_t cpus = 0, thousandths = 0;

    if (whole >= sizeof(head) || strlen(s + whole) > sizeof(digits))
        return err_set(e, ERR_INVALID, "'%.40s' is not a number of processors such as 1.5", s);
    memcpy(head, s, whole);
    head[whole] = '\0';
    if (s[whole] == '.')
        memcpy(digits, s + whole + 1, strlen(s + whole + 1));
    if (str_parse_u64(head, 0, CPUS_MAX, &cpus, NULL) < 0 ||
        str_parse_u64(digits, 0, 999, &thousandths, NULL) < 0 || cpus * 1000 + thousandths == 0)
        return err_set(e, ERR_INVALID, "'%.40s' is not a number of processors such as 1.5", s);
    *ret = (uint32_t)(cpus * 1000 + thousandths);
    return 0;
}

int cli_store_value(const struct cli_option *o, void *at, const char *value, struct err *e)
{
    uint64_t n = 0;
    int r = 0;

    switch (o->type) {
    case CLI_FLAG:
        *(bool *)at = !value || strcmp(value, "true") == 0;
        break;
    case CLI_STR:
        *(const char **)at = value;
        break;
    case CLI_LIST:
        r = strv_push((char ***)at, value, e);
        break;
    case CLI_DURATION:
        r = str_parse_duration(value, (int64_t *)at, e);
        break;
    case CLI_SIZE:
        r = str_parse_size(value, (uint64_t *)at, e);
        break;
    case CLI_U16:
        r = str_parse_u64(value, 1, UINT16_MAX, &n, e);
        if (r == 0)
            *(uint16_t *)at = (uint16_t)n;
        break;
    case CLI_U32:
        r = str_parse_u64(value, 0, UINT32_MAX, &n, e);
        if (r == 0)
            *(uint32_t *)at = (uint32_t)n;
        break;
    case CLI_CPUS:
        r = cli_parse_cpus(value, (uint32_t *)at, e);
        break;
    }
    return r;
}

static int store_given(const struct cli_option *o, void *at, const char *value, struct err *e)
{
    int r = cli_store_value(o, at, value, e);

    return r < 0 ? err_at(e, err_wrap(e, r, "--%s", o->name), o->name) : 0;
}

static const struct cli_option *find_in(const struct cli_option *options, const char *name,
                                        size_t len, char letter)
{
    for (; options && options->name; options++)
        if (letter ? options->letter == letter
                   : strncmp(options->name, name, len) == 0 && !options->name[len])
            return options;
    return NULL;
}

struct parse {
    struct cli *cli;
    const struct cli_command *cmd;
    void *args;
    char **next; /* the remaining words */
};

/* Finds an option that is given, and the address of its value. */
static const struct cli_option *find_option(const struct parse *p, const char *name, size_t len,
                                            char letter, void **ret_at)
{
    const struct cli_option *o = find_in(p->cmd->options, name, len, letter);

    if (o) {
        *ret_at = (char *)p->args + o->offset;
        p->cli->given |= UINT64_C(1) << (o - p->cmd->options);
        return o;
    }
    o = find_in(cli_common_options, name, len, letter);
    if (o) {
        *ret_at = (char *)p->cli + o->offset;
        p->cli->given_common |= UINT64_C(1) << (o - cli_common_options);
    }
    return o;
}

static int take_long(struct parse *p, const char *word, struct err *e)
{
    size_t len = strcspn(word, "=");
    const char *value = word[len] ? word + len + 1 : NULL;
    const struct cli_option *o;
    void *at;

    o = find_option(p, word, len, 0, &at);
    if (!o)
        return err_field(e, ERR_INVALID, word, "unknown option '--%.*s'", (int)len, word);
    if (o->type == CLI_FLAG && value && strcmp(value, "true") != 0 && strcmp(value, "false") != 0)
        return err_field(e, ERR_INVALID, o->name, "option '--%s' takes no value but true and false",
                         o->name);
    if (o->type != CLI_FLAG && !value) {
        value = *p->next;
        if (!value)
            return err_field(e, ERR_INVALID, o->name, "option '--%s' needs a value: --%s %s",
                             o->name, o->name, o->arg);
        p->next++;
    }
    return store_given(o, at, value, e);
}

/* "-it", "-nFOO", "-n FOO" */
static int take_letters(struct parse *p, const char *word, struct err *e)
{
    for (const char *c = word; *c; c++) {
        const struct cli_option *o;
        const char *value = NULL;
        void *at;

        o = find_option(p, "", 0, *c, &at);
        if (!o)
            return err_field(e, ERR_INVALID, word, "unknown option '-%c'", *c);
        if (o->type != CLI_FLAG) {
            value = c[1] ? c + 1 : *p->next;
            if (!value)
                return err_field(e, ERR_INVALID, o->name, "option '-%c' needs a value: -%c %s", *c,
                                 *c, o->arg);
            if (!c[1])
                p->next++;
        }
        if (value)
            return store_given(o, at, value, e);
        (void)store_given(o, at, NULL, e);
    }
    return 0;
}

static int check_operands(const struct cli_command *cmd, char *const *operands, struct err *e)
{
    size_t n = strv_len(operands);

    if (n < cmd->min_operands)
        return err_field(e, ERR_INVALID, "operands", "too few arguments: bellhop %s %s", cmd->name,
                         cmd->operands);
    if (n > cmd->max_operands)
        return err_field(e, ERR_INVALID, "operands", "unexpected argument '%.100s': bellhop %s %s",
                         operands[cmd->max_operands], cmd->name, cmd->operands);
    return 0;
}

int cli_parse(struct cli *c, const struct cli_command *cmd, char **argv, void *args,
              char ***ret_operands, struct err *e)
{
    struct parse p = {.cli = c, .cmd = cmd, .args = args, .next = argv};
    _cleanup_strv_ char **operands = calloc(1, sizeof(char *));
    bool only_operands = false;
    int r = operands ? 0 : err_oom(e);

    while (r == 0 && *p.next) {
        char *word = *p.next++;

        if (!only_operands && strcmp(word, "--") == 0) {
            only_operands = true;
        } else if (!only_operands && word[0] == '-' && word[1] == '-') {
            r = take_long(&p, word + 2, e);
        } else if (!only_operands && word[0] == '-' && word[1]) {
            r = take_letters(&p, word + 1, e);
        } else {
            r = strv_push(&operands, word, e);
            /* exec NAME CMD --flag: the words after CMD belong to CMD. */
            if (cmd->flags & CLI_STOP_AT_OPERAND && strv_len(operands) >= 2)
                only_operands = true;
        }
    }
    if (r == 0)
        r = check_operands(cmd, operands, e);
    if (r == 0)
        *ret_operands = TAKE(operands);
    return r;
}

int cli_parse_common(struct cli *c, char ***argv, struct err *e)
{
    static const struct cli_command none = {.name = ""};
    struct parse p = {.cli = c, .cmd = &none, .next = *argv};
    int r = 0;

    while (r == 0 && *p.next && **p.next == '-') {
        const char *word = *p.next++;

        if (strcmp(word, "--") == 0)
            break;
        r = word[1] == '-' ? take_long(&p, word + 2, e) : take_letters(&p, word + 1, e);
        if (r < 0)
            r = err_field(e, ERR_INVALID, word,
                          "unknown option '%.60s' before the command; a command's own options "
                          "follow it",
                          word);
    }
    *argv = p.next;
    return r;
}

void cli_args_done(const struct cli_command *cmd, void *args)
{
    for (const struct cli_option *o = cmd->options; args && o && o->name; o++)
        if (o->type == CLI_LIST)
            strv_free(*(char ***)((char *)args + o->offset));
    free(args);
}

/* ---- variables ---- */

/* "K" becomes "K=value of K here"; with must_be_bare, "K=V" is refused (it would be in argv). */
int cli_expand_env(char **list, const char *field, bool must_be_bare, char ***ret, struct err *e)
{
    int r = 0;

    for (; r == 0 && list && *list; list++) {
        _cleanup_free_ char *pair = NULL;
        const char *value;

        if (strchr(*list, '=') && must_be_bare)
            return err_field(e, ERR_INVALID, field,
                             "--%s takes a name only: a value would stand in the process list",
                             field);
        if (strchr(*list, '=')) {
            r = strv_push(ret, *list, e);
            continue;
        }
        value = getenv(*list);
        if (!value)
            return err_field(e, ERR_NOT_FOUND, field, "--%s: the variable '%.100s' is not set",
                             field, *list);
        if (asprintf(&pair, "%s=%s", *list, value) < 0)
            return err_oom(e);
        r = strv_push(ret, pair, e);
    }
    return r;
}

/* Lines "K=V"; empty lines and lines that start with # are skipped; values are not unquoted. */
int cli_read_env_file(const char *path, char ***ret, struct err *e)
{
    _cleanup_free_ char *text = NULL;
    unsigned number = 0;
    int r = io_read_file(AT_FDCWD, path, ENV_FILE_MAX_BYTES, &text, NULL, e);

    if (r < 0)
        return err_at(e, r, "env-file");
    for (char *line = text, *next; r == 0 && line; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        number++;
        if (!*line || *line == '#')
            continue;
        if (!strchr(line, '=') || *line == '=')
            return err_field(e, ERR_INVALID, "env-file", "'%s' line %u is not K=V", path, number);
        r = strv_push(ret, line, e);
    }
    return r;
}
