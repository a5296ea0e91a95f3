#include "search/types.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/mem.h"
#include "common/cleanup.h"
#include "common/str.h"
#include "search/pattern.h"

struct type_row {
    const char *name;
    const char *globs; /* separated by spaces */
};

/* Sorted by name. */
static const struct type_row type_table[] = {
    {"agda", "*.agda *.lagda"},
    {"aidl", "*.aidl"},
    {"amake", "*.bp *.mk"},
    {"asciidoc", "*.adoc *.asc *.asciidoc"},
    {"asm", "*.S *.asm *.s"},
    {"asp", "*.ascx *.ascx.cs *.ascx.vb *.aspx *.aspx.cs *.aspx.vb"},
    {"ats", "*.ats *.dats *.hats *.sats"},
    {"avro", "*.avdl *.avpr *.avsc"},
    {"awk", "*.awk"},
    {"bazel", "*.BUILD *.bazel *.bazelrc *.bzl BUILD WORKSPACE"},
    {"bitbake", "*.bb *.bbappend *.bbclass *.conf *.inc"},
    {"brotli", "*.br"},
    {"buildstream", "*.bst"},
    {"bzip2", "*.bz2 *.tbz2"},
    {"c", "*.[chH] *.[chH].in *.cats"},
    {"cabal", "*.cabal"},
    {"cbor", "*.cbor"},
    {"ceylon", "*.ceylon"},
    {"clojure", "*.clj *.cljc *.cljs *.cljx"},
    {"cmake", "*.cmake CMakeLists.txt"},
    {"coffeescript", "*.coffee"},
    {"config", "*.cfg *.conf *.config *.ini"},
    {"coq", "*.v"},
    {"cpp", "*.[ChH] *.[ChH].in *.[ch]pp *.[ch]pp.in *.[ch]xx *.[ch]xx.in *.cc *.cc.in *.hh "
            "*.hh.in *.inl"},
    {"creole", "*.creole"},
    {"crystal", "*.cr Projectfile"},
    {"cs", "*.cs"},
    {"csharp", "*.cs"},
    {"cshtml", "*.cshtml"},
    {"css", "*.css *.scss"},
    {"csv", "*.csv"},
    {"cython", "*.pxd *.pxi *.pyx"},
    {"d", "*.d"},
    {"dart", "*.dart"},
    {"dhall", "*.dhall"},
    {"diff", "*.diff *.patch"},
    {"docker", "*Dockerfile*"},
    {"dvc", "*.dvc Dvcfile"},
    {"ebuild", "*.ebuild"},
    {"edn", "*.edn"},
    {"elisp", "*.el"},
    {"elixir", "*.eex *.ex *.exs"},
    {"elm", "*.elm"},
    {"erb", "*.erb"},
    {"erlang", "*.erl *.hrl"},
    {"fidl", "*.fidl"},
    {"fish", "*.fish"},
    {"flatbuffers", "*.fbs"},
    {"fortran", "*.F *.F77 *.F90 *.F95 *.f *.f77 *.f90 *.f95 *.pfo"},
    {"fsharp", "*.fs *.fsi *.fsx"},
    {"fut", ".fut"},
    {"gap", "*.g *.gap *.gd *.gi *.tst"},
    {"gn", "*.gn *.gni"},
    {"go", "*.go"},
    {"gradle", "*.gradle"},
    {"groovy", "*.gradle *.groovy"},
    {"gzip", "*.gz *.tgz"},
    {"h", "*.h *.hpp"},
    {"haml", "*.haml"},
    {"haskell", "*.c2hs *.cpphs *.hs *.hsc *.lhs"},
    {"hbs", "*.hbs"},
    {"hs", "*.hs *.lhs"},
    {"html", "*.ejs *.htm *.html"},
    {"idris", "*.idr *.lidr"},
    {"java", "*.java *.jsp *.jspx *.properties"},
    {"jinja", "*.j2 *.jinja *.jinja2"},
    {"jl", "*.jl"},
    {"js", "*.js *.jsx *.vue"},
    {"json", "*.json composer.lock"},
    {"jsonl", "*.jsonl"},
    {"julia", "*.jl"},
    {"jupyter", "*.ipynb *.jpynb"},
    {"k", "*.k"},
    {"kotlin", "*.kt *.kts"},
    {"less", "*.less"},
    {"license", "*[.-]LICEN[CS]E* AGPL-*[0-9]* APACHE-*[0-9]* BSD-*[0-9]* CC-BY-* COPYING "
                "COPYING[.-]* COPYRIGHT COPYRIGHT[.-]* EULA EULA[.-]* GFDL-*[0-9]* GNU-*[0-9]* "
                "GPL-*[0-9]* LGPL-*[0-9]* LICEN[CS]E LICEN[CS]E[.-]* MIT-*[0-9]* MPL-*[0-9]* "
                "NOTICE NOTICE[.-]* OFL-*[0-9]* PATENTS PATENTS[.-]* UNLICEN[CS]E "
                "UNLICEN[CS]E[.-]* agpl[.-]* gpl[.-]* lgpl[.-]* licen[cs]e licen[cs]e.*"},
    {"lisp", "*.el *.jl *.lisp *.lsp *.sc *.scm"},
    {"lock", "*.lock package-lock.json"},
    {"log", "*.log"},
    {"lua", "*.lua"},
    {"lz4", "*.lz4"},
    {"lzma", "*.lzma"},
    {"m4", "*.ac *.m4"},
    {"make", "*.mak *.mk [Gg][Nn][Uu]makefile [Gg][Nn][Uu]makefile.am [Gg][Nn][Uu]makefile.in "
             "[Mm]akefile [Mm]akefile.am [Mm]akefile.in"},
    {"mako", "*.mako *.mao"},
    {"man", "*.[0-9][cEFMmpSx] *.[0-9lnpx]"},
    {"markdown", "*.markdown *.md *.mdown *.mkdn"},
    {"matlab", "*.m"},
    {"md", "*.markdown *.md *.mdown *.mkdn"},
    {"meson", "meson.build meson_options.txt"},
    {"minified", "*.min.css *.min.html *.min.js"},
    {"mint", "*.mint"},
    {"mk", "mkfile"},
    {"ml", "*.ml"},
    {"msbuild", "*.csproj *.fsproj *.proj *.props *.targets *.vcxproj"},
    {"nim", "*.nim *.nimble *.nimf *.nims"},
    {"nix", "*.nix"},
    {"objc", "*.h *.m"},
    {"objcpp", "*.h *.mm"},
    {"ocaml", "*.ml *.mli *.mll *.mly"},
    {"org", "*.org *.org_archive"},
    {"pascal", "*.dpr *.inc *.lpr *.pas *.pp"},
    {"pdf", "*.pdf"},
    {"perl", "*.PL *.perl *.pl *.plh *.plx *.pm *.t"},
    {"php", "*.php *.php3 *.php4 *.php5 *.phtml"},
    {"po", "*.po"},
    {"pod", "*.pod"},
    {"postscript", "*.eps *.ps"},
    {"protobuf", "*.proto"},
    {"ps", "*.cdxml *.ps1 *.ps1xml *.psd1 *.psm1"},
    {"puppet", "*.erb *.pp *.rb"},
    {"purs", "*.purs"},
    {"py", "*.py"},
    {"qmake", "*.prf *.pri *.pro"},
    {"qml", "*.qml"},
    {"r", "*.R *.Rmd *.Rnw *.r"},
    {"racket", "*.rkt"},
    {"rdoc", "*.rdoc"},
    {"readme", "*README README*"},
    {"red", "*.r *.red *.reds"},
    {"robot", "*.robot"},
    {"rst", "*.rst"},
    {"ruby", "*.gemspec *.rb *.rbw .irbrc Gemfile Rakefile config.ru"},
    {"rust", "*.rs"},
    {"sass", "*.sass *.scss"},
    {"scala", "*.sbt *.scala"},
    {"sh", "*.bash *.bashrc *.csh *.cshrc *.ksh *.kshrc *.sh *.tcsh *.zsh .bash_login "
           ".bash_logout .bash_profile .bashrc .cshrc .kshrc .login .logout .profile "
           ".tcshrc .zlogin .zlogout .zprofile .zshenv .zshrc bash_login bash_logout "
           "bash_profile bashrc profile zlogin zlogout zprofile zshenv zshrc"},
    {"slim", "*.skim *.slim *.slime"},
    {"smarty", "*.tpl"},
    {"sml", "*.sig *.sml"},
    {"soy", "*.soy"},
    {"spark", "*.spark"},
    {"spec", "*.spec"},
    {"sql", "*.psql *.sql"},
    {"stylus", "*.styl"},
    {"sv", "*.h *.sv *.svh *.v *.vg"},
    {"svg", "*.svg"},
    {"swift", "*.swift"},
    {"swig", "*.def *.i"},
    {"systemd", "*.automount *.conf *.device *.link *.mount *.path *.scope *.service *.slice "
                "*.socket *.swap *.target *.timer"},
    {"taskpaper", "*.taskpaper"},
    {"tcl", "*.tcl"},
    {"tex", "*.bib *.cls *.dtx *.ins *.ltx *.sty *.tex"},
    {"textile", "*.textile"},
    {"tf", "*.tf"},
    {"thrift", "*.thrift"},
    {"toml", "*.toml Cargo.lock"},
    {"ts", "*.ts *.tsx"},
    {"twig", "*.twig"},
    {"txt", "*.txt"},
    {"typoscript", "*.ts *.typoscript"},
    {"vala", "*.vala"},
    {"vb", "*.vb"},
    {"vcl", "*.vcl"},
    {"verilog", "*.sv *.svh *.v *.vh"},
    {"vhdl", "*.vhd *.vhdl"},
    {"vim", "*.vim"},
    {"vimscript", "*.vim"},
    {"webidl", "*.idl *.webidl *.widl"},
    {"wiki", "*.mediawiki *.wiki"},
    {"xml", "*.dtd *.rng *.sch *.xhtml *.xjb *.xml *.xml.dist *.xsd *.xsl *.xslt"},
    {"xz", "*.txz *.xz"},
    {"yacc", "*.y"},
    {"yaml", "*.yaml *.yml"},
    {"yang", "*.yang"},
    {"z", "*.Z"},
    {"zig", "*.zig"},
    {"zsh", "*.zsh .zlogin .zlogout .zprofile .zshenv .zshrc zlogin zlogout zprofile zshenv zshrc"},
    {"zstd", "*.zst *.zstd"},
};

struct list {
    struct pattern **v;
    size_t n, cap;
};

struct types {
    struct list select;
    struct list leave_out;
};

const char *types_at(size_t i, const char **ret_globs)
{
    if (i >= N_ELEMENTS(type_table))
        return NULL;
    *ret_globs = type_table[i].globs;
    return type_table[i].name;
}

static void list_done(struct list *l)
{
    for (size_t i = 0; i < l->n; i++)
        pattern_free(l->v[i]);
    free(l->v);
}

struct types *types_free(struct types *t)
{
    if (t) {
        list_done(&t->select);
        list_done(&t->leave_out);
        free(t);
    }
    return NULL;
}

static int list_add_glob(struct list *l, const char *glob, size_t len, struct err *e)
{
    int r = array_grow(&l->v, &l->cap, l->n + 1, SIZE_MAX / sizeof(*l->v), e);

    if (r == 0)
        r = pattern_new(glob, len, false, &l->v[l->n], e);
    l->n += r == 0;
    return r;
}

static int add_globs(struct list *l, const char *globs, struct err *e)
{
    while (*globs) {
        size_t len = strcspn(globs, " ");
        int r = list_add_glob(l, globs, len, e);

        if (r < 0)
            return r;
        globs += len + (globs[len] == ' ');
    }
    return 0;
}

/* The part of a type_add row after "name:", or NULL if the row is about another type. */
static const char *type_add_value(const char *row, const char *name, bool all)
{
    size_t len = strcspn(row, ":");
    bool is_named = strlen(name) == len && strncmp(row, name, len) == 0;

    return (is_named || all) && row[len] ? row + len + 1 : NULL;
}

static bool add_known(struct list *l, const char *name, size_t len, bool all, int *r, struct err *e)
{
    bool found = false;

    for (size_t i = 0; *r == 0 && i < N_ELEMENTS(type_table); i++) {
        if (!all &&
            (strlen(type_table[i].name) != len || strncmp(type_table[i].name, name, len) != 0))
            continue;
        found = true;
        *r = add_globs(l, type_table[i].globs, e);
    }
    return found;
}

/* "include:cpp,py": types of the table. */
static int add_included(struct list *l, const char *names, struct err *e)
{
    int r = 0;

    while (r == 0 && *names) {
        size_t len = strcspn(names, ",");

        if (!add_known(l, names, len, false, &r, e))
            return err_field(e, ERR_INVALID, "type_add", "no file type '%.*s'", (int)len, names);
        names += len + (names[len] == ',');
    }
    return r;
}

static int add_type(struct list *l, const char *name, char *const *more, const char *field,
                    struct err *e)
{
    bool all = strcmp(name, "all") == 0;
    int r = 0;
    bool found = add_known(l, name, strlen(name), all, &r, e);

    for (size_t i = 0; r == 0 && more && more[i]; i++) {
        const char *glob = type_add_value(more[i], name, all);

        if (!glob)
            continue;
        found = true;
        if (str_has_prefix(glob, "include:"))
            r = add_included(l, glob + strlen("include:"), e);
        else
            r = list_add_glob(l, glob, strlen(glob), e);
        if (r < 0)
            return err_at(e, r, "type_add");
    }
    if (r == 0 && !found)
        return err_field(e, ERR_INVALID, field, "no file type '%.40s'", name);
    return r;
}

static int add_types(struct list *l, char *const *names, char *const *more, const char *field,
                     struct err *e)
{
    for (size_t i = 0; names && names[i]; i++) {
        int r = add_type(l, names[i], more, field, e);

        if (r < 0)
            return r;
    }
    return 0;
}

static int check_added(char *const *add, struct err *e)
{
    for (size_t i = 0; add && add[i]; i++) {
        size_t len = strcspn(add[i], ":");

        if (!len || !add[i][len] || !add[i][len + 1])
            return err_field(e, ERR_INVALID, "type_add", "must be \"name:glob\", not '%.60s'",
                             add[i]);
    }
    return 0;
}

int types_new(char *const *select, char *const *leave_out, char *const *add, struct types **ret,
              struct err *e)
{
    struct types *t;
    int r = check_added(add, e);

    if (r < 0)
        return r;
    if (!strv_len(select) && !strv_len(leave_out)) {
        *ret = NULL;
        return 0;
    }
    t = calloc(1, sizeof(*t));
    if (!t)
        return err_oom(e);
    r = add_types(&t->select, select, add, "types", e);
    if (r == 0)
        r = add_types(&t->leave_out, leave_out, add, "type_not", e);
    if (r < 0) {
        types_free(t);
        return r;
    }
    *ret = t;
    return 0;
}

static bool list_has(const struct list *l, const char *name, size_t len)
{
    for (size_t i = 0; i < l->n; i++)
        if (pattern_match(l->v[i], name, len))
            return true;
    return false;
}

enum ignore_verdict types_match(const struct types *t, const char *name, size_t len)
{
    if (!t)
        return IGNORE_NONE;
    if (list_has(&t->leave_out, name, len))
        return IGNORE_HIDE;
    if (list_has(&t->select, name, len))
        return IGNORE_KEEP;
    return t->select.n ? IGNORE_HIDE : IGNORE_NONE;
}
