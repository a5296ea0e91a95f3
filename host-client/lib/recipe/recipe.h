#pragma once
/*
 * recipe: how a coding agent gets into a box and how one sees that it is well, as data
 * (bootstrap/NAME.json; bootstrap/schema.json describes it, bootstrap/README.md explains it).
 * Decoded once and checked whole; strings are templates with ${variables}, which stand for
 * themselves only: nothing of a recipe passes through a shell.
 */
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

#define RECIPE_MAX_BYTES (256 * 1024)
#define RECIPE_MAX_TEXT_BYTES (1024 * 1024) /* of one expanded template */
#define RECIPE_MAX_NPM 16
#define RECIPE_MAX_NODE 4
#define RECIPE_MAX_FILES 64
#define RECIPE_RESTARTS 5 /* of an agent that ends by itself, by the box's monitor */
#define RECIPE_RESTARTS_MAX 50

enum recipe_mode {
    RECIPE_SERVER, /* listens on a port */
    RECIPE_RPC,    /* answers on its standard input and output */
};

/* A platform package of npm: the first row that fits the box is taken. */
struct recipe_npm {
    const char *package;
    const char *arch;      /* as uname says it; "": any */
    const char *cpu;       /* a flag of /proc/cpuinfo that it needs, or "" */
    const char *integrity; /* of the recipe's own version, or "" */
};

/* Either a text at a path, or something of the user's --agent-config directory. */
struct recipe_file {
    const char *path;
    const char *content;
    uint32_t mode;
    const char *from; /* within the configuration directory; NULL for a text */
    const char *into; /* a directory in the box */
};

struct recipe_timeouts {
    uint32_t check, install, files, start; /* ms */
};

struct recipe_health {
    uint32_t attempt_ms;
    uint32_t total_ms;
    uint32_t interval_ms; /* from one look to the next, while it runs */
    /* http */
    const char *path;     /* NULL: none */
    json_t *expect;       /* members that the answer must have; NULL: any JSON object (http) */
    const char *username; /* of basic authentication with the password; NULL: none */
    /* rpc */
    json_t *send;        /* one line; an "id" is added; NULL: none */
    const char *session; /* where the session's id stands in the answer, "data.sessionId"; NULL */
};

struct recipe {
    json_t *doc;   /* owns what the others borrow */
    char *dir;     /* where its file is: lock files are beside it */
    char *version; /* asked for, or the recipe's own */
    const char *name;
    const char *description;
    const char *own_version;
    uint32_t port;            /* 0: none */
    json_t *check_argv;       /* NULL: always install */
    const char *check_output; /* a template, or NULL: its exit status alone says it */
    struct recipe_npm npm[RECIPE_MAX_NPM];
    size_t n_npm;
    const char *npm_lock;                    /* a package-lock.json beside the recipe, or NULL */
    struct recipe_npm node[RECIPE_MAX_NODE]; /* for a box without Node.js */
    size_t n_node;
    const char *node_version;
    json_t *install_argvs; /* commands in the box, one after the other, or NULL */
    struct recipe_file files[RECIPE_MAX_FILES];
    size_t n_files;
    json_t *env; /* for every command of the recipe, or NULL */
    enum recipe_mode mode;
    json_t *start_argv;
    json_t *start_env;    /* for the start alone, or NULL */
    const char *cwd;      /* a template */
    json_t *session_args; /* added when it comes back to a known session, or NULL */
    const char
        *session_unknown; /* a template: its log says so when it has no such session, or NULL */
    json_t *restart_args; /* added when it is started again after it ended by itself, or NULL */
    uint32_t restart_max; /* at most RECIPE_RESTARTS_MAX */
    struct recipe_health health;
    struct recipe_timeouts timeouts;
};

/*
 * agent: "opencode", "opencode@1.18.33", or the path of a recipe (with a '/' or ending in
 * ".json"). An unknown name is ERR_NOT_FOUND and the message has the known ones; a broken recipe
 * is ERR_INVALID and the error's field is the path within it.
 */
int recipe_load(const char *recipe_dir, const char *agent, struct recipe *ret, struct err *e);
/* The same from a document that was kept; dir and version as they were. */
int recipe_from_json(json_t *doc, const char *dir, const char *version, struct recipe *ret,
                     struct err *e);
void recipe_done(struct recipe *r); /* accepts zeroed */

struct recipe_vars {
    const char *port;
    const char *password;
    const char *workdir;
    const char *version;
    const char *home;
    const char *install; /* where this version of this agent is installed */
    const char *session;
};

/* "${home}/x" -> "/home/user/x"; "$${" is "${". A variable that has no value is ERR_INVALID. */
int recipe_expand(const char *text, const struct recipe_vars *vars, char **ret, struct err *e);
/* Appends each expanded string of a list (NULL: nothing) to an array. */
int recipe_expand_list(json_t *list, const struct recipe_vars *vars, json_t *array, struct err *e);
/* Sets each expanded member of an object (NULL: nothing) in another. */
int recipe_expand_env(json_t *env, const struct recipe_vars *vars, json_t *object, struct err *e);
