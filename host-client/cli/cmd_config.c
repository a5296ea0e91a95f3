#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "common/cleanup.h"
#include "common/jsonx.h"

struct args {
    bool all, check;
};

static const struct cli_option config_options[] = {
    CLI_OPT("all", 0, CLI_FLAG, all, NULL, "also list the options that have their built-in value"),
    CLI_OPT("check", 0, CLI_FLAG, check, NULL,
            "only check the files; the status is 2 or 7 if one is wrong"),
    {0},
};

/* The text of a value: a list's strings with commas, "-" for none. Valid until the next call. */
static const char *value_text(json_t *value)
{
    static char text[4096];
    json_t *item;
    size_t i, n = 0;

    if (json_is_boolean(value))
        return json_is_true(value) ? "true" : "false";
    if (json_is_string(value))
        return cli_text(json_string_value(value));
    (void)snprintf(text, sizeof(text), "-");
    if (json_is_integer(value))
        (void)snprintf(text, sizeof(text), "%lld", (long long)json_integer_value(value));
    json_array_foreach (value, i, item) {
        if (n < sizeof(text))
            n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s", i ? ", " : "",
                                  cli_text(json_string_value(item)));
    }
    return text;
}

static void print_values(const struct cli *c, json_t *values, const char *key, bool all)
{
    static const char *const heads[] = {"KEY", "VALUE", "SOURCE", NULL};
    struct cli_table *table = cli_table_new(heads);
    json_t *row;
    size_t i;

    json_array_foreach (values, i, row) {
        const char *name = json_string_value(json_object_get(row, "key"));
        const char *source = json_string_value(json_object_get(row, "source"));

        /* An option of a command has a dot in its key. */
        if (key ? strcmp(key, name) != 0
                : !all && strchr(name, '.') && strcmp(source, "built-in") == 0)
            continue;
        cli_table_add(table, (const char *const[]){name, value_text(json_object_get(row, "value")),
                                                   cli_text(source), NULL});
    }
    cli_table_print_free(table, c->tty_out);
}

static json_t *find_key(json_t *values, const char *key)
{
    json_t *row;
    size_t i;

    json_array_foreach (values, i, row) {
        if (strcmp(key, json_string_value(json_object_get(row, "key"))) == 0)
            return row;
    }
    return NULL;
}

static void print_problems(json_t *files)
{
    json_t *file, *problem;
    size_t i, n;

    json_array_foreach (files, i, file) {
        json_array_foreach (json_object_get(file, "problems"), n, problem)
            (void)fprintf(stderr, "bellhop: %s\n", cli_text(json_string_value(problem)));
    }
}

static int run_config(struct cli *c, void *args, char **operands, struct bh_error *err)
{
    const struct args *a = args;
    _cleanup_json_ json_t *files = NULL;
    _cleanup_json_ json_t *values = NULL;
    struct err e = {0};
    int r = cli_config_read(&c->config, &e);

    if (r < 0)
        return cli_fail(err, (enum bh_code) - r, "", "%s", e.message);
    files = cli_config_files(c->config);
    values = cli_config_values(c);
    if (operands[0] && !find_key(values, operands[0]))
        return cli_fail(err, BH_INVALID_ARGUMENT, "key",
                        "there is no key '%.100s' ('bellhop config --all')", operands[0]);
    if (a->check) {
        r = cli_config_check(c->config, &e);
        if (c->json)
            (void)cli_print_json_take(json_pack("{s:O}", "files", files));
        else
            print_problems(files);
        if (r == 0)
            return EXIT_CLI_OK;
        (void)cli_fail(err, (enum bh_code) - r, e.field, "%s", e.message);
        return cli_exit_for(err);
    }
    if (c->json && operands[0])
        return cli_print_json_take(json_incref(find_key(values, operands[0])));
    if (c->json)
        return cli_print_json_take(json_pack("{s:O, s:O}", "files", files, "values", values));
    print_problems(files);
    print_values(c, values, operands[0], a->all);
    return EXIT_CLI_OK;
}

const struct cli_command cmd_config = {
    .name = "config",
    .group = "Machine",
    .operands = "[KEY]",
    .summary = "show the configuration, and where each value comes from",
    .details =
        "The files are ~/.config/bellhop/config.toml (in $XDG_CONFIG_HOME, or the file\n"
        "$BELLHOP_CONFIG) and /etc/bellhop/config.toml. They set defaults: a flag beats the\n"
        "environment, the environment beats the user's file, that beats the system's file, and "
        "the\n"
        "built-in values are last. An option of a command stands in the table of that command:\n"
        "\n"
        "  state-dir = \"/srv/bellhop\"\n"
        "  [up]\n"
        "  memory = \"4G\"\n"
        "  network = \"none\"\n"
        "\n"
        "A list that is given by flags replaces that of a file. --FLAG=false overrides a flag "
        "that a\n"
        "file sets. See bellhop.toml(5). If a file is wrong, every other command refuses to work "
        "and\n"
        "names the file, the line and the key; this one shows the rest. The values of env are not\n"
        "shown.",
    .examples = "  bellhop config\n"
                "  bellhop config up.memory   # one value, and where it comes from\n"
                "  bellhop config --check     # after an edit\n"
                "  bellhop config --all       # every key that there is\n",
    .options = config_options,
    .args_bytes = sizeof(struct args),
    .max_operands = 1,
    .flags = CLI_NO_CONTEXT,
    .run = run_config,
};
