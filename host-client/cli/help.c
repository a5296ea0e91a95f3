#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "common/cleanup.h"

#include "common/banned.h"

#define OPTION_COLUMN 30

static const char exit_codes[] =
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

static const char environment[] =
    "Environment\n"
    "  BELLHOP_STATE_DIR  boxes and their store ($XDG_STATE_HOME/bellhop)\n"
    "  BELLHOP_CACHE_DIR  downloads ($XDG_CACHE_HOME/bellhop)\n"
    "  BELLHOP_AGENT, BELLHOP_MONITOR, BELLHOP_RECIPES, BELLHOP_IMAGES\n"
    "                     parts of Bellhop, when they are not beside the program\n";

static const struct {
    const char *name;
    const char *text;
} topics[] = {{"exit-codes", exit_codes}, {"environment", environment}};

int cli_print_topic(FILE *f, const char *topic)
{
    for (size_t i = 0; i < N_ELEMENTS(topics); i++) {
        if (strcmp(topics[i].name, topic) == 0) {
            (void)fputs(topics[i].text, f);
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

/* Text for roff: a leading dot or quote and each backslash and dash would mean something. */
static void put_roff(FILE *f, const char *s)
{
    bool at_start = true;

    for (; *s; s++) {
        if (at_start && (*s == '.' || *s == '\''))
            (void)fputs("\\&", f);
        if (*s == '\\')
            (void)fputs("\\e", f);
        else if (*s == '-')
            (void)fputs("\\-", f);
        else
            (void)fputc(*s, f);
        at_start = *s == '\n';
    }
}

static void man_head(FILE *f, const char *page, const char *summary)
{
    (void)fprintf(f, ".TH %s 1 \"\" \"Bellhop %s\" \"Bellhop\"\n.SH NAME\n%s \\- ", page,
                  bh_version(), page);
    put_roff(f, summary);
    (void)fputc('\n', f);
}

static void man_block(FILE *f, const char *title, const char *text)
{
    (void)fprintf(f, ".SH %s\n.nf\n", title);
    put_roff(f, text);
    (void)fputs(".fi\n", f);
}

static void man_option(FILE *f, const struct cli_option *o)
{
    (void)fputs(".TP\n.B ", f);
    if (o->letter)
        (void)fprintf(f, "\\-%c, ", o->letter);
    (void)fputs("\\-\\-", f);
    put_roff(f, o->name);
    if (o->arg)
        (void)fprintf(f, " \\fI%s\\fR", o->arg);
    (void)fputc('\n', f);
    put_roff(f, o->help);
    (void)fputc('\n', f);
}

static void man_overview(FILE *f)
{
    const struct cli_command *cmd;

    man_head(f, "bellhop", "coding agents in isolated boxes");
    (void)fputs(".SH SYNOPSIS\n.B bellhop\n\\fICOMMAND\\fR [\\fIOPTION\\fR...]\n.SH COMMANDS\n", f);
    for (size_t i = 0; (cmd = cli_command_at(i)); i++) {
        (void)fprintf(f, ".TP\n.BR bellhop\\-%s (1)\n", cmd->name);
        put_roff(f, cmd->summary);
        (void)fputc('\n', f);
    }
    man_block(f, "EXIT STATUS", exit_codes);
    man_block(f, "ENVIRONMENT", environment);
}

void cli_print_man(FILE *f, const struct cli_command *cmd)
{
    char page[64];

    if (!cmd) {
        man_overview(f);
        return;
    }
    (void)snprintf(page, sizeof(page), "bellhop\\-%s", cmd->name);
    man_head(f, page, cmd->summary);
    (void)fprintf(f, ".SH SYNOPSIS\n.B bellhop %s\n%s", cmd->name,
                  cmd->options ? "[\\fIOPTION\\fR...] " : "");
    put_roff(f, cmd->operands);
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
        (void)fprintf(f, "complete -c bellhop -n __fish_use_subcommand -f -a %s -d '%s'\n",
                      cmd->name, cmd->summary);
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
