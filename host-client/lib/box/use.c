#include "lib/box/use.h"

#include <string.h>

#include "common/cleanup.h"
#include "common/str.h"

#define ALL_SHARE 20   /* 1/20 of one processor over the time: something is at work */
#define AGENT_SHARE 50 /* 1/50 for the coding agent, which mostly waits for its model */

void use_init(struct use *u, int64_t now_ms)
{
    *u = (struct use){.at_ms = now_ms, .used_ms = now_ms};
}

void use_done(struct use *u)
{
    json_decref(u->before);
    memset(u, 0, sizeof(*u));
}

static int64_t json_number(const json_t *obj, const char *name)
{
    return json_integer_value(json_object_get(obj, name));
}

static bool is_shell(const char *name)
{
    static const char *const shells[] = {"sh",  "bash", "dash", "ash",    "zsh",
                                         "ksh", "mksh", "fish", "busybox"};

    for (size_t i = 0; i < N_ELEMENTS(shells); i++)
        if (str_eq(name, shells[i]))
            return true;
    return false;
}

/* Does this running command count as use of the box? */
static bool command_counts(const struct use *u, const json_t *command, const char *agent_id,
                           int64_t passed_ms)
{
    const char *id = json_string_value(json_object_get(command, "id"));
    const json_t *before = json_object_get(u->before, id ? id : "");
    bool is_agent = *agent_id && str_eq(id, agent_id);
    bool is_idle_shell = json_number(command, "processes") == 1 &&
                         is_shell(json_string_value(json_object_get(command, "name")));
    int64_t cpu_ms = json_number(command, "cpu_ms") - json_number(before, "cpu_ms");

    if (is_agent && u->is_new_agent)
        return false; /* restarts in a loop are no use of the box */
    if (!is_agent && !is_idle_shell && !json_is_true(json_object_get(command, "listens")))
        return true;
    if (cpu_ms * (is_agent ? AGENT_SHARE : ALL_SHARE) > passed_ms)
        return true;
    return is_idle_shell && !is_agent &&
           json_number(command, "output_bytes") > json_number(before, "output_bytes");
}

/* An agent from before an update does not list its commands. */
static bool any_counts(const struct use *u, const json_t *commands, const char *agent_id,
                       int64_t passed_ms)
{
    const json_t *list = json_object_get(commands, "list");
    const json_t *ids = json_object_get(commands, "ids");
    const json_t *v;
    size_t i;

    json_array_foreach (list, i, v)
        if (command_counts(u, v, agent_id, passed_ms))
            return true;
    if (list)
        return json_number(commands, "running") > (int64_t)json_array_size(list);
    json_array_foreach (ids, i, v)
        if (!str_eq(json_string_value(v), agent_id))
            return true;
    return false;
}

static json_t *index_commands(const json_t *list)
{
    json_t *all = json_object();
    json_t *v;
    size_t i;

    json_array_foreach (list, i, v) {
        const char *id = json_string_value(json_object_get(v, "id"));

        if (all && id)
            (void)json_object_set(all, id, v);
    }
    return all;
}

bool use_look(struct use *u, const json_t *activity, const char *agent_id, int n_restarts,
              int64_t now_ms)
{
    const json_t *commands = json_object_get(activity, "commands");
    const json_t *calls = json_object_get(activity, "calls");
    /* An agent from before an update counts the monitor's own calls too. */
    bool knows_quiet = json_object_get(commands, "list") != NULL;
    int64_t cpu_ms = json_number(json_object_get(activity, "cpu"), "total_ms");
    int64_t passed_ms = now_ms - u->at_ms;
    int64_t called_ms = now_ms - json_number(calls, "last_ms_ago");
    bool is_used, was_called;

    u->is_new_agent = n_restarts != u->n_restarts;
    is_used = json_array_size(json_object_get(activity, "holds")) > 0 ||
              (knows_quiet && json_number(calls, "open") > 0) ||
              (!u->is_new_agent && (cpu_ms - u->cpu_ms) * ALL_SHARE > passed_ms) ||
              any_counts(u, commands, agent_id, passed_ms);
    was_called = knows_quiet && calls && called_ms >= u->at_ms;
    if (is_used)
        u->used_ms = now_ms;
    else if (was_called && called_ms > u->used_ms)
        u->used_ms = called_ms;

    json_decref(u->before);
    *u = (struct use){.at_ms = now_ms,
                      .used_ms = u->used_ms,
                      .n_restarts = n_restarts,
                      .cpu_ms = cpu_ms,
                      .before = index_commands(json_object_get(commands, "list"))};
    return is_used || was_called;
}
