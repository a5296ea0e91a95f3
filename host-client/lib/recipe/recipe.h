#pragma once
/*
 * recipe: the description of a coding agent as data: how to install, start and check it
 * (bootstrap/NAME.json; bootstrap/schema.json describes it, bootstrap/README.md explains it). It
 * is decoded once and checked as a whole. Strings are templates with ${variables}; a value is
 * inserted literally, and nothing of a recipe passes through a shell.
 */
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

#define RECIPE_MAX_BYTES (256 * 1024)
#define RECIPE_MAX_TEXT_BYTES (1024 * 1024) /* limit of one expanded template */
#define RECIPE_MAX_NPM 16
#define RECIPE_MAX_NODE 4
#define RECIPE_MAX_FILES 64
#define RECIPE_RESTARTS 5 /* the monitor's restarts of an agent that ends by itself */
#define RECIPE_RESTARTS_MAX 50

enum recipe_mode {
    RECIPE_SERVER, /* listens on a port */
    RECIPE_RPC,    /* answers on its standard input and output */
};

/* A platform package of npm: the first row that fits the box is taken. */
struct recipe_npm {
    const char *package;
    const char *arch;      /* as in uname; "": any */
    const char *cpu;       /* a required flag of /proc/cpuinfo, or "" */
    const char *integrity; /* digest of the recipe's own version, or "" */
};

/* Either a text for a path, or a part of the user's --agent-config directory. */
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

/* Unless the recipe has others. */
#define RECIPE_TOTAL_MS 120000 /* from its start until a coding agent is healthy */
#define RECIPE_ATTEMPT_MS 2000 /* for the answer to one health check */
#define RECIPE_RETRY_MS 500    /* at most, between two checks of an agent that starts */
#define RECIPE_INTERVAL_MS 15000

struct recipe_health {
    uint32_t attempt_ms;
    uint32_t total_ms;
    uint32_t interval_ms; /* from one check to the next, while it runs */
    /* http */
    const char *path;     /* NULL: none */
    json_t *expect;       /* members required in the answer; NULL: any JSON object (http) */
    const char *username; /* for basic authentication with the password; NULL: none */
    /* rpc */
    json_t *send;        /* one line; an "id" is added; NULL: none */
    const char *session; /* path of the session's id in the answer, "data.sessionId"; or NULL */
};

struct recipe {
    json_t *doc;   /* owns the borrowed strings below */
    char *dir;     /* directory of its file and of lock files */
    char *version; /* the requested version, or the recipe's own */
    const char *name;
    const char *description;
    const char *own_version;
    uint32_t port;            /* 0: none */
    json_t *check_argv;       /* NULL: always install */
    const char *check_output; /* a template; NULL: the exit status alone decides */
    struct recipe_npm npm[RECIPE_MAX_NPM];
    size_t n_npm;
    const char *npm_lock;                    /* a package-lock.json beside the recipe, or NULL */
    struct recipe_npm node[RECIPE_MAX_NODE]; /* for a box without Node.js */
    size_t n_node;
    const char *node_version;
    json_t *install_argvs; /* commands in the box, in order; or NULL */
    struct recipe_file files[RECIPE_MAX_FILES];
    size_t n_files;
    json_t *env; /* for every command of the recipe, or NULL */
    enum recipe_mode mode;
    json_t *start_argv;
    json_t *start_env;    /* for the start only, or NULL */
    const char *cwd;      /* a template */
    json_t *session_args; /* appended when it resumes a known session, or NULL */
    const char
        *session_unknown; /* a template: its log contains this if it has no such session; or NULL */
    json_t *restart_args; /* appended when it is restarted after it ended by itself, or NULL */
    uint32_t restart_max; /* at most RECIPE_RESTARTS_MAX */
    struct recipe_health health;
    const char *conversation; /* the API that takes prompts (conversation.h); or NULL */
    struct recipe_timeouts timeouts;
};

/*
 * agent: "opencode", "opencode@1.18.33", or the path of a recipe (with a '/' or ending in
 * ".json"). ERR_NOT_FOUND for an unknown name; the message lists the known ones. ERR_INVALID for a
 * broken recipe; the error's field is the path within it.
 */
int recipe_load(const char *recipe_dir, const char *agent, struct recipe *ret, struct err *e);
/* The same from a saved document; dir and version are the saved ones. */
int recipe_from_json(json_t *doc, const char *dir, const char *version, struct recipe *ret,
                     struct err *e);
void recipe_done(struct recipe *r); /* accepts zeroed */

struct recipe_vars {
    const char *port;
    const char *password;
    const char *workdir;
    const char *version;
    const char *home;
    const char *install; /* the directory of this version of this agent */
    const char *session;
};

/* Expands "${home}/x" to "/home/user/x"; "$${" is "${". ERR_INVALID: a variable has no value. */
int recipe_expand(const char *text, const struct recipe_vars *vars, char **ret, struct err *e);
/* Appends each expanded string of a list (NULL: nothing) to an array. */
int recipe_expand_list(json_t *list, const struct recipe_vars *vars, json_t *array, struct err *e);
/* Sets each expanded member of an object (NULL: nothing) in another. */
int recipe_expand_env(json_t *env, const struct recipe_vars *vars, json_t *object, struct err *e);
