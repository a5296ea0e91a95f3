#include "test.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/io.h"
#include "lib/image/template.h"
#include "lib/util/toml.h"

/* The repository's own recipes and templates. */
static char places[] = "t";
static struct bh_ctx ctx = {.template_dir = places, .recipe_dir = places};

static void put(const char *path, const char *text)
{
    T_INT(io_write_file(AT_FDCWD, path, text, strlen(text), 0644, false, NULL), 0);
}

static void make_places(void)
{
    T_INT(io_mkdir_p("t/templates/small", 0755, NULL), 0);
    T_INT(io_mkdir_p("t/templates/tools", 0755, NULL), 0);
    T_INT(io_mkdir_p("t/templates/ring", 0755, NULL), 0);
    put("t/templates/small/e2b.toml", "template_name = 'small'\n[bellhop]\nversion = '2'\n"
                                      "packages = ['bash', 'python3-pip']\n");
    put("t/templates/tools/e2b.toml",
        "template_name = 'tools'\n[bellhop]\nfrom = 'small'\npackages = ['ruby']\nnode = true\n");
    put("t/templates/ring/e2b.toml", "template_name = 'ring'\n[bellhop]\nfrom = 'ring'\n");
}

static int parse(const char *text, struct toml *ret, struct err *e)
{
    return toml_parse("x.toml", text, strlen(text), ret, e);
}

TEST(a_settings_file_is_read_whole)
{
    struct toml t = {0};

    T_INT(parse("# first\n"
                "a = \"x\\ty\\u00e9\\\"\" # and\n"
                "'b' = 'c:\\raw'\r\n"
                "\"c\"=1_000\n"
                "d = -7\n"
                "e = true\n"
                "f = [ 'one', # of\n  \"two\",\n]\n"
                "g = []\n"
                "h = \"\"\"\nfirst\\\n   and \"\"second\"\"\"\n"
                "i = '''it's'''\n"
                "[ t . u ]\n"
                "k = false\n"
                "[t]\nv.w = 0",
                &t, NULL),
          0);
    T_INT(t.n, 11);
    T_STR(t.values[0].text, "x\ty\xc3\xa9\"");
    T_STR(t.values[1].text, "c:\\raw");
    T_INT(t.values[2].number, 1000);
    T_INT(t.values[3].number, -7);
    T_INT(t.values[4].number, 1);
    T_STR(t.values[5].list[1], "two");
    T_INT(t.values[5].list_lines[1], 8);
    T_OK(!t.values[6].list[0]);
    T_STR(t.values[7].text, "firstand \"\"second");
    T_STR(t.values[8].text, "it's");
    T_STR(t.values[9].key, "t.u.k");
    T_INT(t.values[9].line, 16);
    T_STR(t.values[10].key, "t.v.w");
    toml_done(&t);
}

TEST(what_is_no_settings_file_is_refused_by_its_line)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"a", "x.toml:1: a key is followed by '='"},
        {"\n\na = ", "x.toml:3: neither a string"},
        {"a = 1.5", "x.toml:1: neither a string"},
        {"a = 2026-01-01", "x.toml:1: neither a string"},
        {"a = {b = 1}", "x.toml:1: neither a string"},
        {"a = 01", "x.toml:1: a number with a zero"},
        {"a = 1__0", "x.toml:1: a '_'"},
        {"a = 1_", "x.toml:1: a '_'"},
        {"a = 99999999999999999999", "x.toml:1: '99999999999999999999' is not a number"},
        {"a = \"x", "x.toml:1: a string without its end"},
        {"a = \"x\ny\"", "x.toml:1: a string without its end"},
        {"\na = '''x\n\n", "x.toml:2: a string without its end"},
        {"a = \"\\q\"", "x.toml:1: an unknown escape"},
        {"a = \"\\ud800\"", "x.toml:1: an escape of an invalid character"},
        {"a = \"\\u0000\"", "x.toml:1: an escape of an invalid character"},
        {"a = \"\\u12\"", "x.toml:1: an escape needs 4"},
        {"a = \"\x01\"", "x.toml:1: a control character"},
        {"a = 'x' b = 'y'", "x.toml:1: unexpected text behind the value"},
        {"a = 'x'\na = 'y'", "x.toml:2: 'a' is there twice"},
        {"[a]\n[a]", "x.toml:2: the table 'a' is there twice"},
        {"[a\n", "x.toml:1: the table's name ends with ']'"},
        {"[[a]]", "x.toml:1: arrays of tables"},
        {"[]", "x.toml:1: a key is expected"},
        {"= 1", "x.toml:1: a key is expected"},
        {"a. = 1", "x.toml:1: a key is expected"},
        {"'' = 1", "x.toml:1: a key that is empty"},
        {"a = [1]", "x.toml:1: a list has strings"},
        {"a = ['x' 'y']", "x.toml:1: a list's strings have commas"},
        {"a = [\n'x',\n", "x.toml:3: a list has strings"},
        {"a = 'x\xff'", "x.toml:1: not valid UTF-8"},
    };

    for (size_t i = 0; i < N_ELEMENTS(cases); i++) {
        struct toml t = {0};
        struct err e = {0};

        T_INT(parse(cases[i].text, &t, &e), -ERR_INVALID);
        if (strncmp(e.message, cases[i].says, strlen(cases[i].says)) != 0)
            T_STR(e.message, cases[i].says);
        T_OK(!t.values);
    }
}

TEST(a_settings_file_past_its_bounds_is_refused)
{
    _cleanup_free_ char *big = malloc(TOML_MAX_BYTES + 2);
    struct toml t = {0};
    struct err e = {0};
    char *at = big;

    memset(big, '#', TOML_MAX_BYTES + 1);
    big[TOML_MAX_BYTES + 1] = '\0';
    T_INT(parse(big, &t, &e), -ERR_INVALID);
    big[TOML_MAX_BYTES] = '\0';
    T_INT(parse(big, &t, NULL), 0);
    toml_done(&t);
    for (int i = 0; i <= TOML_MAX_VALUES; i++)
        at += sprintf(at, "k%d = 1\n", i);
    T_INT(parse(big, &t, &e), -ERR_INVALID);
    T_STR(e.message, "x.toml:257: more than 256 values");
    memset(big, 'k', TOML_MAX_KEY_BYTES);
    strcpy(big + TOML_MAX_KEY_BYTES, " = 1");
    T_INT(parse(big, &t, &e), -ERR_INVALID);
    at = big + sprintf(big, "a = [");
    for (int i = 0; i <= 1000; i++)
        at += sprintf(at, "'%d',", i);
    strcpy(at, "]");
    T_INT(parse(big, &t, &e), -ERR_INVALID);
    T_STR(e.message, "x.toml:1: a list of more than 1000");
}

/* ---- templates ---- */

static int load(const char *text, struct template **ret, struct err *e)
{
    make_places();
    put("e2b.toml", text);
    return template_load(&ctx, "e2b.toml", ret, e);
}

TEST(a_template_has_its_fields_and_defaults)
{
    _cleanup_template_ struct template *t = NULL;

    T_INT(load("template_name = 'mine'\ntemplate_id = 'abc'\nteam_id = 'u'\ndockerfile = 'D'\n"
               "start_cmd = 'a && b'\nready_cmd = 'c'\ncpu_count = 2\nmemory_mb = 512\n"
               "[bellhop]\nfrom = 'small'\npackages = ['jq', 'g++', 'ruby=1:3.1~x']\npip = "
               "['Pillow==11.3.0']\n"
               "npm = ['@a/b@1.2.3', 'tsx']\nenv = ['A=b c']\nexclude = ['/usr/*/x']\n"
               "flavours = ['tools']\nsize_mb = 100\n",
               &t, NULL),
          0);
    T_STR(t->name, "mine");
    T_STR(t->version, "latest");
    T_STR(t->suite, "bookworm");
    T_STR(t->user, "user");
    T_STR(t->workdir, "/home/user");
    T_STR(t->start_cmd, "a && b");
    T_INT(t->cpu_count, 2);
    T_INT(t->memory_mb, 512);
    T_STR(t->from->name, "small");
    /* the additions of the flavour, without those of its base */
    T_STR(t->packages[3], "ruby");
    T_OK(!t->packages[4]);
    T_OK(t->node);
}

TEST(a_wrong_template_is_refused_by_file_line_and_field)
{
    static const struct {
        const char *text, *field, *says;
    } cases[] = {
        {"", "template_name", "e2b.toml:1: the field 'template_name' is missing"},
        {"template_name = 'X'", "template_name", "e2b.toml:1: template_name: 'X' is not a name"},
        {"template_name = '../x'", "template_name", "e2b.toml:1: "},
        {"template_name = 1", "template_name",
         "e2b.toml:1: template_name must be a string, and is"},
        {"\ntemplate_nam = 'x'", "template_nam", "e2b.toml:2: there is no field 'template_nam'"},
        {"template_name = 'x'\n[belhop]\n", "belhop", "e2b.toml:2: there is no table 'belhop'"},
        {"template_name = 'x'\n\n[bellhop.more]\na = 1", "bellhop.more",
         "e2b.toml:3: there is no table 'bellhop.more'"},
        {"cpu_count = '2'", "cpu_count",
         "e2b.toml:1: cpu_count must be an integer, and is a string"},
        {"cpu_count = 0", "cpu_count", "e2b.toml:1: cpu_count must be from 1 to 1024"},
        {"cpu_count = -1", "cpu_count", "e2b.toml:1: cpu_count must be from 1 to 1024"},
        {"memory_mb = 127", "memory_mb", "e2b.toml:1: memory_mb must be from 128"},
        {"start_cmd = \"a\\u001bb\"", "start_cmd", "e2b.toml:1: start_cmd: "},
        {"ready_cmd = ''", "ready_cmd", "e2b.toml:1: ready_cmd: '' is not a text of 1"},
        {"[bellhop]\nnode = 'yes'", "bellhop.node",
         "e2b.toml:2: bellhop.node must be true or false"},
        {"[bellhop]\nuser = 'root'", "bellhop.user", "e2b.toml:2: bellhop.user: 'root' is not"},
        {"[bellhop]\nworkdir = 'home'", "bellhop.workdir", "e2b.toml:2: "},
        {"[bellhop]\nworkdir = '/a/../b'", "bellhop.workdir", "e2b.toml:2: "},
        {"[bellhop]\nversion = 'a b'", "bellhop.version", "e2b.toml:2: "},
        {"[bellhop]\nsuite = 'Book'", "bellhop.suite", "e2b.toml:2: "},
        {"[bellhop]\npackages = 'jq'", "bellhop.packages",
         "e2b.toml:2: bellhop.packages must be a list"},
        {"[bellhop]\npackages = [\n'jq',\n'--x']", "bellhop.packages",
         "e2b.toml:4: bellhop.packages: '--x' is not a package's name"},
        {"[bellhop]\npackages = ['a b']", "bellhop.packages", "e2b.toml:2: "},
        {"[bellhop]\npackages = ['jq', 'jq']", "bellhop.packages",
         "e2b.toml:2: bellhop.packages: 'jq' is there twice"},
        {"[bellhop]\nnpm = ['-g']", "bellhop.npm", "e2b.toml:2: "},
        {"[bellhop]\nnpm = ['@a']", "bellhop.npm", "e2b.toml:2: "},
        {"[bellhop]\nnpm = ['a@file:/x']", "bellhop.npm", "e2b.toml:2: "},
        {"[bellhop]\npip = ['-r x']", "bellhop.pip", "e2b.toml:2: "},
        {"[bellhop]\npip = ['a @ https://x']", "bellhop.pip", "e2b.toml:2: "},
        {"[bellhop]\nenv = ['1=2']", "bellhop.env", "e2b.toml:2: "},
        {"[bellhop]\nenv = ['A']", "bellhop.env", "e2b.toml:2: "},
        {"[bellhop]\nexclude = ['usr']", "bellhop.exclude", "e2b.toml:2: "},
        {"[bellhop]\nsize_mb = 0", "bellhop.size_mb", "e2b.toml:2: bellhop.size_mb must be from 1"},
        {"template_name = 'x'\n[bellhop]\nfrom = 'gone'", "bellhop.from",
         "e2b.toml:3: bellhop.from: there is no template 'gone'"},
        {"template_name = 'x'\n[bellhop]\nfrom = './gone'", "bellhop.from", "e2b.toml:3: "},
        {"template_name = 'x'\n[bellhop]\nflavours = ['gone']", "bellhop.flavours", "e2b.toml:3: "},
        {"template_name = 'x'\n[bellhop]\nfrom = 'ring'", "bellhop.from",
         "t/templates/ring/e2b.toml:3: more than 8 templates"},
        {"template_name = 'x'\n[bellhop]\nnpm = ['a']", "bellhop.npm",
         "e2b.toml:3: bellhop.npm needs node = true"},
        {"template_name = 'x'\n[bellhop]\npip = ['a']", "bellhop.pip",
         "e2b.toml:3: bellhop.pip needs the package python3-pip"},
        {"template_name = 'x'\n[bellhop]\nagents = ['gone']", "bellhop.agents",
         "e2b.toml:3: bellhop.agents: "},
        {"template_name = 'x'\n[bellhop]\nfrom = 'small'\nsuite = 'trixie'", "bellhop.suite",
         "e2b.toml:4: bellhop.suite is 'trixie', but"},
    };

    for (size_t i = 0; i < N_ELEMENTS(cases); i++) {
        struct template *t = NULL;
        struct err e = {0};

        T_INT(load(cases[i].text, &t, &e), -ERR_INVALID);
        T_STR(e.field, cases[i].field);
        if (strncmp(e.message, cases[i].says, strlen(cases[i].says)) != 0)
            T_STR(e.message, cases[i].says);
        T_OK(!t);
    }
}

TEST(a_template_without_a_user_or_workdir_has_those_of_what_it_stands_on)
{
    static const struct {
        const char *below, *text, *user, *workdir;
    } cases[] = {
        {"", "", "user", "/home/user"},
        {"", "user = 'me'", "me", "/home/me"},
        {"", "workdir = '/srv'", "user", "/srv"},
        {"user = 'me'\nworkdir = '/srv'", "", "me", "/srv"},
        {"user = 'me'\nworkdir = '/srv'", "user = 'me'", "me", "/srv"},
        {"user = 'me'\nworkdir = '/srv'", "user = 'you'", "you", "/home/you"},
        {"user = 'me'", "workdir = '/opt'", "me", "/opt"},
    };

    for (size_t i = 0; i < N_ELEMENTS(cases); i++) {
        _cleanup_template_ struct template *t = NULL;
        char text[200];

        (void)snprintf(text, sizeof(text), "template_name = 'low'\n[bellhop]\n%s\n",
                       cases[i].below);
        put("low.toml", text);
        (void)snprintf(text, sizeof(text),
                       "template_name = 'x'\n[bellhop]\nfrom = './low.toml'\n%s\n", cases[i].text);
        T_INT(load(text, &t, NULL), 0);
        T_STR(t->user, cases[i].user);
        T_STR(t->workdir, cases[i].workdir);
    }
}

TEST(a_template_is_found_by_name_version_and_path)
{
    struct template *t = NULL;
    struct err e = {0};

    make_places();
    put("e2b.toml", "template_name = 'mine'\n");
    T_INT(template_find(&ctx, "small", &t, NULL), 0);
    t = template_free(t);
    T_INT(template_find(&ctx, "small:2", &t, NULL), 0);
    t = template_free(t);
    T_INT(template_find(&ctx, "mine:latest", &t, NULL), 0);
    t = template_free(t);
    T_INT(template_find(&ctx, "t/templates/tools", &t, NULL), 0);
    T_STR(t->name, "tools");
    t = template_free(t);
    T_INT(template_find(&ctx, "small:1", &t, &e), -ERR_NOT_FOUND);
    T_STR(e.message, "the template 'small' is version '2', not '1'");
    T_INT(template_find(&ctx, "gone", &t, &e), -ERR_NOT_FOUND);
    T_INT(template_find(&ctx, "a b", &t, &e), -ERR_INVALID);
    T_INT(template_find(&ctx, "small:", &t, &e), -ERR_INVALID);
    T_INT(template_find(&ctx, "./gone.toml", &t, &e), -ERR_NOT_FOUND);
    T_STR(e.field, "image");
}

TEST(a_template_is_written_as_plain_files)
{
    _cleanup_template_ struct template *t = NULL;
    _cleanup_free_ char *text = NULL;

    T_INT(load("template_name = 'mine'\nstart_cmd = 'run'\n[bellhop]\nfrom = 'small'\n"
               "packages = ['jq', 'zip']\n",
               &t, NULL),
          0);
    T_INT(template_write(t, "def", NULL), 0);
    T_INT(io_read_file(AT_FDCWD, "def/packages", 100, &text, NULL, NULL), 0);
    T_STR(text, "jq\nzip\n");
    free(text);
    T_INT(io_read_file(AT_FDCWD, "def/start_cmd", 100, &text, NULL, NULL), 0);
    T_STR(text, "run\n");
    free(text);
    T_INT(io_read_file(AT_FDCWD, "def/from/name", 100, &text, NULL, NULL), 0);
    T_STR(text, "small\n");
}
