#include "lib/project/secretfiles.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/cleanup.h"
#include "lib/util/beneath.h"

#define SETTINGS_MAX_BYTES (64 * 1024)

/* Harmless names that match the patterns below. */
static const char *const harmless_names[] = {
    ".env.example", ".env.sample", ".env.template", ".env.dist", ".env.defaults", "*.pub",
};

static const char *const secret_names[] = {
    ".env",
    ".env.*",
    "*.env",
    ".envrc",
    "*.pem",
    "*.key",
    "*.p12",
    "*.pfx",
    "*.jks",
    "*.keystore",
    "*.ppk",
    "*.kdbx",
    "*.asc",
    "id_rsa*",
    "id_dsa*",
    "id_ecdsa*",
    "id_ed25519*",
    "credentials",
    ".credentials",
    "credentials.json",
    "credentials.y*ml",
    "credentials.toml",
    "credentials.ini",
    "credentials.csv",
    "credentials.db",
    "credentials.txt",
    ".netrc",
    "_netrc",
    ".pgpass",
    ".my.cnf",
    ".git-credentials",
    ".htpasswd",
    ".dockercfg",
    "kubeconfig",
    "secrets.json",
    "secrets.y*ml",
    "secrets.toml",
    "secrets.env",
    "service-account*.json",
    "service_account*.json",
    "*.tfvars",
    "*.ovpn",
};

/* Settings files that are secret if they contain a credential. */
static const struct {
    const char *name;
    const char *word;
} settings_files[] = {
    {".npmrc", "_auth"},     {".npmrc", "_password"}, {".yarnrc.yml", "npmAuth"},
    {".pypirc", "password"}, {"pip.conf", "@"},
};

static bool matches_any(const char *const *patterns, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (fnmatch(patterns[i], name, FNM_CASEFOLD) == 0)
            return true;
    return false;
}

/* A link has none: where it leads is not sent. */
static bool has_word(int root, const char *path, const char *word)
{
    _cleanup_free_ char *text = NULL;
    struct err e = {0};

    if (beneath_read_file(root, path, SETTINGS_MAX_BYTES, &text, NULL, &e) < 0)
        return e.sys != ELOOP; /* not readable, or too long to be settings: better left out */
    return strstr(text, word) != NULL;
}

bool secretfiles_match(const char *name, int root, const char *path)
{
    if (matches_any(harmless_names, N_ELEMENTS(harmless_names), name))
        return false;
    if (matches_any(secret_names, N_ELEMENTS(secret_names), name))
        return true;
    for (size_t i = 0; i < N_ELEMENTS(settings_files); i++)
        if (strcasecmp(settings_files[i].name, name) == 0 &&
            has_word(root, path, settings_files[i].word))
            return true;
    return false;
}
