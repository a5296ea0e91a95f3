#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "common/cleanup.h"

#define OPTION_COLUMN 30
#define ROFF_COLUMN 56 /* lines of a page's source break at the first blank from this column on */

static const char exit_codes_topic[] =
    "Exit statuses\n"
    "   0  done\n"
    "   1  an error without a number of its own; grep: nothing matched\n"
    "   2  wrong usage, or a value that cannot be right\n"
    "   3  no such box, file, image, agent\n"
    "   4  in the way: the box exists otherwise, the state does not allow it\n"
    "   5  something that is needed does not answer (network, agent, engine)\n"
    "   6  out of time\n"
    "   7  not allowed\n"
    "   8  a limit was reached, or the disk or memory is full\n"
    "   9  not supported here\n"
    "  10  the coding agent could not be set up; the message names the step\n"
    "  11  data is gone or damaged\n"
    " 130  interrupted\n"
    "\n"
    "exec, shell, attach and wait end with the command's own status, and else with\n"
    " 124  the command's --timeout is over, or wait's\n"
    " 125  Bellhop failed, or does not know how the command ended\n"
    " 126  the command cannot be run\n"
    " 127  the command was not found\n"
    " 128+n  the command was ended by signal n (137 also: it used more memory than it may)\n";

static const char environment_topic[] =
    "Environment\n"
    "  BELLHOP_STATE_DIR    boxes and their store (default: $XDG_STATE_HOME/bellhop, else\n"
    "                       $HOME/.local/state/bellhop)\n"
    "  BELLHOP_CACHE_DIR    downloads (default: $XDG_CACHE_HOME/bellhop, else "
    "$HOME/.cache/bellhop)\n"
    "  BELLHOP_CONFIG       the user's configuration file (default:\n"
    "                       $XDG_CONFIG_HOME/bellhop/config.toml, else\n"
    "                       $HOME/.config/bellhop/config.toml); see bellhop.toml(5)\n"
    "  BELLHOP_DEBUG        1: the debug log goes to standard error; /FILE: to that file, mode "
    "0600,\n"
    "                       up to 10 MiB, then to /FILE.1; provider,state,http,host: only these "
    "parts\n"
    "  BELLHOP_DAEMON       the daemon whose boxes the commands use, as --daemon\n"
    "  BELLHOP_TOKEN        its token; BELLHOP_TOKEN_FILE a file with it, BELLHOP_DAEMON_CA a "
    "file\n"
    "                       with the certificates that https trusts\n"
    "  BELLHOP_IMAGE        the image of 'up' without --image (default: slim)\n"
    "  BELLHOP_ANSWER_TIMEOUT\n"
    "                       how long a box's guest agent may be silent on a call (default: 30s)\n"
    "  BELLHOP_PROVIDER_TIMEOUT\n"
    "                       how long a provider may take for one call (default: 5m)\n"
    "  BELLHOP_RECORDS_FOR  how long the records of destroyed boxes are kept (default: 30d)\n"
    "  BELLHOP_AGENT, BELLHOP_MONITOR, BELLHOP_RECIPES\n"
    "                       the programs bellhopd and bellhop-monitor and the directory of "
    "recipes,\n"
    "                       when they are not where they were installed or built\n"
    "  BELLHOP_IMAGES, BELLHOP_TEMPLATES, BELLHOP_IMAGE_CACHE\n"
    "                       directories of images, of what they are built with and of their "
    "layers\n"
    "  TMPDIR               short-lived files of put and image test (default: /tmp)\n"
    "  XDG_RUNTIME_DIR      the daemon's socket lies there\n"
    "  LISTEN_FDS, LISTEN_PID, NOTIFY_SOCKET\n"
    "                       systemd gives the daemon its sockets and hears that it is ready\n"
    "  NO_COLOR             not empty: grep prints no colours; so too with TERM=dumb\n"
    "\n"
    "For boxes and for builds of images\n"
    "\n"
    "  HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY\n"
    "                       also in lower case: how a box and a build reach the network\n"
    "  SSL_CERT_FILE, NODE_EXTRA_CA_CERTS\n"
    "                       certificates of this file are trusted in the box too\n"
    "  npm_config_registry  where coding agents come from (default: npm's own settings)\n"
    "  PIP_INDEX_URL, PIP_EXTRA_INDEX_URL, PIP_TRUSTED_HOST\n"
    "                       where builds of images have Python's packages from\n"
    "  DOCKER_HOST, DOCKER_CONTEXT, DOCKER_CONFIG, DOCKER_CERT_PATH, DOCKER_TLS_VERIFY\n"
    "                       the engine of --provider docker, as docker's own command has it\n"
    "  KUBECONFIG           the cluster of --provider kubernetes: a file, or proxy:SOCKET\n"
    "  BELLHOP_KUBE_CONTEXT, BELLHOP_KUBE_NAMESPACE, BELLHOP_KUBE_REGISTRY\n"
    "                       the context in it, the namespace of boxes, and where images are\n"
    "  KUBERNETES_SERVICE_HOST, KUBERNETES_SERVICE_PORT\n"
    "                       the cluster's own address, for a command that runs in a pod\n"
    "  BELLHOP_QEMU_ACCEL   tcg: 'image test' emulates, also where this machine has KVM\n"
    "  BUILDER, BASE        'image test --form dockerfile': docker, podman or buildah; its base "
    "image\n"
    "\n"
    "In a box\n"
    "\n"
    "  BELLHOP_BOX          the box's name, for every command; BELLHOP_BOX_ID its id\n"
    "  SSL_CERT_FILE, CURL_CA_BUNDLE, GIT_SSL_CAINFO, REQUESTS_CA_BUNDLE, NODE_EXTRA_CA_CERTS\n"
    "                       set where this machine has certificates of its own\n"
    "  PATH                 what 'bellhopd' was started with is what its commands get\n"
    "  BELLHOP_HOLD_SOCKET  read by 'bellhopd hold': another socket than the agent's usual one\n";

static const struct {
    const char *name;
    const char *text;
} help_topics[] = {{"exit-codes", exit_codes_topic}, {"environment", environment_topic}};

int cli_print_topic(FILE *f, const char *topic)
{
    for (size_t i = 0; i < N_ELEMENTS(help_topics); i++) {
        if (strcmp(help_topics[i].name, topic) == 0) {
            (void)fputs(help_topics[i].text, f);
            return 0;
        }
    }
    return -1;
}

void cli_print_overview(FILE *f)
{
    const char *group = "";
    const struct cli_command *cmd;

    (void)fputs("Bellhop puts coding agents to work in isolated boxes.\n\n"
                "Start here:\n"
                "  bellhop up .                       a box with opencode and this project in it\n"
                "  bellhop exec NAME -- make test     run a command in it\n"
                "  bellhop rm NAME                    and leave nothing behind\n",
                f);
    for (size_t i = 0; (cmd = cli_command_at(i)); i++) {
        if (strcmp(group, cmd->group) != 0)
            (void)fprintf(f, "\n%s\n", cmd->group);
        group = cmd->group;
        (void)fprintf(f, "  %-11s %s\n", cmd->name, cmd->summary);
    }
    (void)fputs("\n'bellhop help COMMAND' tells more, with examples. "
                "Also: 'bellhop help exit-codes', 'environment'.\n",
                f);
}

static void print_option(FILE *f, const struct cli_option *o)
{
    char left[80];

    (void)snprintf(left, sizeof(left), "%c%c%s--%s%s%s", o->letter ? '-' : ' ',
                   o->letter ? o->letter : ' ', o->letter ? ", " : "  ", o->name, o->arg ? " " : "",
                   o->arg ? o->arg : "");
    if (strlen(left) >= OPTION_COLUMN - 2)
        (void)fprintf(f, "  %s\n%*s%s\n", left, OPTION_COLUMN, "", o->help);
    else
        (void)fprintf(f, "  %-*s%s\n", OPTION_COLUMN - 2, left, o->help);
}

void cli_print_help(FILE *f, const struct cli_command *cmd)
{
    (void)fprintf(f, "Usage: bellhop %s%s%s%s\n\n%c%s.\n", cmd->name,
                  cmd->options ? " [OPTION...]" : "", *cmd->operands ? " " : "", cmd->operands,
                  toupper((unsigned char)cmd->summary[0]), cmd->summary + 1);
    if (cmd->details)
        (void)fprintf(f, "\n%s\n", cmd->details);
    if (cmd->options) {
        (void)fputs("\nOptions:\n", f);
        for (const struct cli_option *o = cmd->options; o->name; o++)
            print_option(f, o);
    }
    (void)fputs("\nFor every command:\n", f);
    for (const struct cli_option *o = cli_common_options; o->name; o++)
        print_option(f, o);
    if (cmd->examples)
        (void)fprintf(f, "\nExamples:\n%s", cmd->examples);
}

/* ---- man pages ---- */

/* Escapes a character that roff would interpret or replace by a typographic one. */
static const char *roff_escape(char c)
{
    switch (c) {
    case '\\':
        return "\\e";
    case '-':
        return "\\-";
    case '\'':
        return "\\(aq";
    case '`':
        return "\\(ga";
    case '^':
        return "\\(ha";
    case '~':
        return "\\(ti";
    default:
        return NULL;
    }
}

/* Writes part of a line; a leading dot would be a request. Returns the bytes written. */
static size_t put_roff_part(FILE *f, const char *s, size_t len, bool is_line_start)
{
    size_t n = 0;

    if (is_line_start && len > 0 && *s == '.')
        n += (size_t)fprintf(f, "\\&");
    for (size_t i = 0; i < len; i++) {
        const char *escaped = roff_escape(s[i]);

        n += (size_t)(escaped ? fprintf(f, "%s", escaped) : fprintf(f, "%c", s[i]));
    }
    return n;
}

/* Writes text that roff fills, in lines of its own length. */
static void put_roff(FILE *f, const char *s, size_t len)
{
    size_t column = 0;

    for (size_t i = 0, word; i < len; i += word) {
        word = strcspn(s + i, " ");
        if (word > len - i)
            word = len - i;
        column += put_roff_part(f, s + i, word, column == 0);
        if (i + word < len) {
            bool is_full = column >= ROFF_COLUMN;

            (void)fputc(is_full ? '\n' : ' ', f);
            column = is_full ? 0 : column + 1;
            word++;
        }
    }
    (void)fputc('\n', f);
}

static void man_head(FILE *f, const char *command, const char *summary)
{
    char page[64];

    (void)snprintf(page, sizeof(page), "bellhop%s%s", command ? "-" : "", command ? command : "");
    (void)fputs(".TH ", f);
    for (const char *c = page; *c; c++)
        (void)fputc(toupper((unsigned char)*c), f);
    (void)fprintf(f, " 1 \"%s\" \"Bellhop %s\" \"Bellhop\"\n.SH NAME\n%s \\- ", BELLHOP_DATE,
                  bh_version(), page);
    put_roff(f, summary, strlen(summary));
}

/* Paragraphs are filled; indented lines (examples, tables) are literal. */
static void man_block(FILE *f, const char *title, const char *text)
{
    bool is_literal = false, is_new_paragraph = false;

    (void)fprintf(f, ".SH %s\n", title);
    for (const char *line = text, *end; *line; line = *end ? end + 1 : end) {
        bool want_literal = *line == ' ';

        end = strchrnul(line, '\n');
        if (end == line) {
            is_new_paragraph = true;
            continue;
        }
        if (is_literal && (!want_literal || is_new_paragraph))
            (void)fputs(".fi\n", f);
        if (is_new_paragraph)
            (void)fputs(".PP\n", f);
        if (want_literal && (!is_literal || is_new_paragraph))
            (void)fputs(".nf\n", f);
        if (want_literal) {
            (void)put_roff_part(f, line, (size_t)(end - line), true);
            (void)fputc('\n', f);
        } else {
            put_roff(f, line, (size_t)(end - line));
        }
        is_literal = want_literal;
        is_new_paragraph = false;
    }
    if (is_literal)
        (void)fputs(".fi\n", f);
}

/* Writes a help topic; its first line is the title in the help only. */
static void man_topic(FILE *f, const char *title, const char *topic)
{
    man_block(f, title, strchr(topic, '\n') + 1);
}

static void man_option(FILE *f, const struct cli_option *o)
{
    (void)fputs(".TP\n.B ", f);
    if (o->letter)
        (void)fprintf(f, "\\-%c, ", o->letter);
    (void)fputs("\\-\\-", f);
    (void)put_roff_part(f, o->name, strlen(o->name), false);
    if (o->arg) {
        (void)fputs(" \\fI", f);
        (void)put_roff_part(f, o->arg, strlen(o->arg), false);
        (void)fputs("\\fR", f);
    }
    (void)fputc('\n', f);
    put_roff(f, o->help, strlen(o->help));
}

static void man_overview(FILE *f)
{
    const struct cli_command *cmd;

    man_head(f, NULL, "coding agents in isolated boxes");
    (void)fputs(".SH SYNOPSIS\n.B bellhop\n\\fICOMMAND\\fR [\\fIOPTION\\fR...]\n.SH COMMANDS\n", f);
    for (size_t i = 0; (cmd = cli_command_at(i)); i++) {
        (void)fputs(".TP\n.BR bellhop\\-", f);
        (void)put_roff_part(f, cmd->name, strlen(cmd->name), false);
        (void)fputs(" (1)\n", f);
        put_roff(f, cmd->summary, strlen(cmd->summary));
    }
    man_topic(f, "EXIT STATUS", exit_codes_topic);
    man_topic(f, "ENVIRONMENT", environment_topic);
}

void cli_print_man(FILE *f, const struct cli_command *cmd)
{
    if (!cmd) {
        man_overview(f);
        return;
    }
    man_head(f, cmd->name, cmd->summary);
    (void)fputs(".SH SYNOPSIS\n.B bellhop ", f);
    (void)put_roff_part(f, cmd->name, strlen(cmd->name), false);
    if (cmd->options || *cmd->operands)
        (void)fprintf(f, "\n%s%s", cmd->options ? "[\\fIOPTION\\fR...]" : "",
                      cmd->options && *cmd->operands ? " " : "");
    (void)put_roff_part(f, cmd->operands, strlen(cmd->operands), false);
    (void)fputc('\n', f);
    if (cmd->details)
        man_block(f, "DESCRIPTION", cmd->details);
    (void)fputs(".SH OPTIONS\n", f);
    for (const struct cli_option *o = cmd->options; o && o->name; o++)
        man_option(f, o);
    for (const struct cli_option *o = cli_common_options; o->name; o++)
        man_option(f, o);
    if (cmd->examples)
        man_block(f, "EXAMPLES", cmd->examples);
    (void)fputs(".SH SEE ALSO\n.BR bellhop (1)\n", f);
}

/* ---- completion ---- */

static void bash_words(FILE *f, const struct cli_option *options)
{
    for (; options && options->name; options++)
        (void)fprintf(f, " --%s", options->name);
}

static void bash_values(FILE *f, const struct cli_command *cmd)
{
    for (const struct cli_option *o = cmd->options; o && o->name; o++) {
        if (!o->values)
            continue;
        (void)fprintf(f, "        %s:--%s) words=\"", cmd->name, o->name);
        for (size_t i = 0; o->values[i]; i++)
            (void)fprintf(f, "%s%s", i ? " " : "", o->values[i]);
        (void)fputs("\" ;;\n", f);
    }
}

static void print_bash(FILE *f)
{
    const struct cli_command *cmd;

    (void)fputs("# bash completion for bellhop; zsh loads it with bashcompinit.\n"
                "_bellhop() {\n"
                "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
                "    local cmd=${COMP_WORDS[1]} words=\n"
                "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
                "        words=\"",
                f);
    for (size_t i = 0; (cmd = cli_command_at(i)); i++)
        (void)fprintf(f, "%s%s", i ? " " : "", cmd->name);
    (void)fputs("\"\n    else\n        case $cmd:$prev in\n", f);
    for (size_t i = 0; (cmd = cli_command_at(i)); i++)
        bash_values(f, cmd);
    (void)fputs("        *) case $cmd in\n", f);
    for (size_t i = 0; (cmd = cli_command_at(i)); i++) {
        (void)fprintf(f, "            %s) case $cur in -*) words=\"", cmd->name);
        bash_words(f, cmd->options);
        bash_words(f, cli_common_options);
        (void)fputs(" --help\" ;;", f);
        if (cmd->flags & CLI_TAKES_BOX)
            (void)fprintf(f, " *) %swords=$(bellhop ls -q 2>/dev/null) ;;",
                          strcmp(cmd->operands, "NAME...") == 0 ? ""
                                                                : "[ \"$COMP_CWORD\" -eq 2 ] && ");
        (void)fputs(" esac ;;\n", f);
    }
    (void)fputs("            esac ;;\n        esac\n    fi\n"
                "    COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
                "    [ ${#COMPREPLY[@]} -ne 0 ] || COMPREPLY=($(compgen -f -- \"$cur\"))\n"
                "    return 0\n"
                "}\ncomplete -F _bellhop bellhop\n",
                f);
}

static void print_fish(FILE *f)
{
    const struct cli_command *cmd;

    for (size_t i = 0; (cmd = cli_command_at(i)); i++) {
        (void)fprintf(f, "complete -c bellhop -n __fish_use_subcommand -f -a %s -d '", cmd->name);
        for (const char *s = cmd->summary; *s; s++)
            (void)fprintf(f, "%s%c", *s == '\'' ? "\\" : "", *s);
        (void)fputs("'\n", f);
        for (const struct cli_option *o = cmd->options; o && o->name; o++)
            (void)fprintf(f, "complete -c bellhop -n '__fish_seen_subcommand_from %s' -l %s%s\n",
                          cmd->name, o->name, o->arg ? " -r" : "");
        if (cmd->flags & CLI_TAKES_BOX)
            (void)fprintf(f,
                          "complete -c bellhop -n '__fish_seen_subcommand_from %s' "
                          "-a '(bellhop ls -q 2>/dev/null)'\n",
                          cmd->name);
    }
}

int cli_print_completion(FILE *f, const char *shell)
{
    if (strcmp(shell, "bash") == 0) {
        print_bash(f);
    } else if (strcmp(shell, "zsh") == 0) {
        (void)fputs("autoload -U +X bashcompinit && bashcompinit\n", f);
        print_bash(f);
    } else if (strcmp(shell, "fish") == 0) {
        print_fish(f);
    } else {
        return -1;
    }
    return 0;
}
