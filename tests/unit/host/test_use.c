#include "test.h"

#include "common/jsonx.h"
#include "lib/box/use.h"

#define MIN (60 * 1000)

/* One command that runs. */
static json_t *command(const char *id, const char *name, bool listens, int processes, int cpu_ms,
                       int output_bytes)
{
    return json_pack("{s:s, s:s, s:b, s:b, s:i, s:i, s:i}", "id", id, "name", name, "pty", 0,
                     "listens", (int)listens, "processes", processes, "cpu_ms", cpu_ms,
                     "output_bytes", output_bytes);
}

/* The agent's report with no call for an hour. Takes the command; NULL: none runs. */
static json_t *activity_take(json_t *running, int cpu_ms)
{
    json_t *list = json_array();

    if (running)
        (void)json_array_append_new(list, running);
    return json_pack("{s:{s:i, s:i}, s:{s:i, s:[], s:o}, s:{s:i}, s:[]}", "calls", "open", 0,
                     "last_ms_ago", 60 * MIN, "commands", "running", (int)json_array_size(list),
                     "ids", "list", list, "cpu", "total_ms", cpu_ms, "holds");
}

static int n_restarts; /* of the agent */

static bool look_take(struct use *u, json_t *activity, int64_t now_ms)
{
    bool is_used = use_look(u, activity, "agent", n_restarts, now_ms);

    json_decref(activity);
    return is_used;
}

TEST(a_box_in_which_nothing_happens_is_not_used)
{
    struct use u;

    use_init(&u, 0);
    T_OK(!look_take(&u, activity_take(NULL, 100), 3 * MIN));
    T_OK(!look_take(&u, activity_take(NULL, 100), 6 * MIN));
    T_OK(!look_take(&u, json_object(), 9 * MIN));
    use_done(&u);
}

TEST(a_command_that_runs_is_use_whatever_it_does)
{
    struct use u;

    use_init(&u, 0);
    for (int i = 1; i < 4; i++)
        T_OK(look_take(&u, activity_take(command("x", "sleep", false, 1, 0, 0), 0), i * 3 * MIN));
    /* One that is being started has no process yet. */
    T_OK(look_take(&u, activity_take(command("y", "", false, 0, 0, 0), 0), 15 * MIN));
    /* A shell that has started something waits for that. */
    T_OK(look_take(&u, activity_take(command("z", "bash", false, 2, 0, 0), 0), 18 * MIN));
    use_done(&u);
}

TEST(an_idle_shell_is_no_use_until_it_prints)
{
    struct use u;

    use_init(&u, 0);
    T_OK(look_take(&u, activity_take(command("s", "bash", false, 1, 10, 40), 10), 3 * MIN));
    T_OK(!look_take(&u, activity_take(command("s", "bash", false, 1, 10, 40), 10), 6 * MIN));
    T_OK(look_take(&u, activity_take(command("s", "bash", false, 1, 10, 41), 10), 9 * MIN));
    T_OK(!look_take(&u, activity_take(command("s", "bash", false, 1, 10, 41), 10), 12 * MIN));
    use_done(&u);
}

TEST(a_server_is_use_while_it_works)
{
    struct use u;
    int cpu_ms = 500;

    use_init(&u, 0);
    T_OK(!look_take(&u, activity_take(command("d", "node", true, 3, cpu_ms, 9), cpu_ms), 3 * MIN));
    cpu_ms += 3 * MIN / 20; /* a twentieth of a processor is not more than that */
    T_OK(!look_take(&u, activity_take(command("d", "node", true, 3, cpu_ms, 99), cpu_ms), 6 * MIN));
    cpu_ms += 3 * MIN / 20 + 1;
    T_OK(look_take(&u, activity_take(command("d", "node", true, 3, cpu_ms, 99), cpu_ms), 9 * MIN));
    T_OK(
        !look_take(&u, activity_take(command("d", "node", true, 3, cpu_ms, 99), cpu_ms), 12 * MIN));
    use_done(&u);
}

TEST(a_coding_agent_is_use_by_less_processor_time_and_not_by_its_output)
{
    struct use u;
    int cpu_ms = 2700;

    use_init(&u, 0);
    T_OK(!look_take(&u, activity_take(command("agent", "pi", false, 1, cpu_ms, 9), cpu_ms),
                    3 * MIN));
    /* Its health is asked for, and it answers. opencode idles at 7 thousandths of a processor. */
    cpu_ms += 3 * MIN * 7 / 1000;
    T_OK(!look_take(&u, activity_take(command("agent", "pi", false, 1, cpu_ms, 99), cpu_ms),
                    6 * MIN));
    cpu_ms += 3 * MIN / 50 + 1;
    T_OK(look_take(&u, activity_take(command("agent", "pi", false, 1, cpu_ms, 99), cpu_ms),
                   9 * MIN));
    use_done(&u);
}

TEST(what_no_command_is_any_more_is_use_while_it_works)
{
    struct use u;

    use_init(&u, 0);
    T_OK(!look_take(&u, activity_take(NULL, 9000), 3 * MIN));
    T_OK(look_take(&u, activity_take(NULL, 9000 + 9001), 6 * MIN));
    T_OK(!look_take(&u, activity_take(NULL, 100), 9 * MIN)); /* it took its time with it */
    use_done(&u);
}

TEST(calls_since_the_last_look_and_open_ones_are_use)
{
    struct use u;
    json_t *a = activity_take(NULL, 0);

    use_init(&u, 0);
    (void)json_object_set_new(json_object_get(a, "calls"), "last_ms_ago", json_integer(3 * MIN));
    T_OK(look_take(&u, json_incref(a), 3 * MIN));
    (void)json_object_set_new(json_object_get(a, "calls"), "last_ms_ago", json_integer(6 * MIN));
    T_OK(!look_take(&u, json_incref(a), 6 * MIN));
    (void)json_object_set_new(json_object_get(a, "calls"), "open", json_integer(1));
    T_OK(look_take(&u, a, 9 * MIN));
    use_done(&u);
}

TEST(a_hold_is_use)
{
    struct use u;
    json_t *a = activity_take(NULL, 0);

    use_init(&u, 0);
    (void)json_object_set_new(a, "holds", json_pack("[{}]"));
    T_OK(look_take(&u, a, 3 * MIN));
    use_done(&u);
}

TEST(more_commands_than_are_listed_and_an_older_agents_commands_are_use)
{
    struct use u;
    json_t *many = activity_take(command("d", "node", true, 1, 0, 0), 0);
    json_t *old = json_pack("{s:{s:i, s:[s, s]}}", "commands", "running", 2, "ids", "agent", "x");
    json_t *old_idle = json_pack("{s:{s:i, s:[s]}}", "commands", "running", 1, "ids", "agent");

    use_init(&u, 0);
    (void)json_object_set_new(json_object_get(many, "commands"), "running", json_integer(101));
    T_OK(look_take(&u, many, 3 * MIN));
    T_OK(look_take(&u, old, 6 * MIN));
    T_OK(!look_take(&u, old_idle, 9 * MIN));
    use_done(&u);
}

TEST(an_agent_that_was_started_again_is_no_use_by_that)
{
    struct use u;

    use_init(&u, 0);
    n_restarts = 1;
    T_OK(
        !look_take(&u, activity_take(command("agent", "node", true, 1, 60000, 0), 60000), 3 * MIN));
    T_OK(look_take(&u, activity_take(command("agent", "node", true, 1, 90000, 0), 90000), 6 * MIN));
    use_done(&u);
    n_restarts = 0;
}

TEST(an_agent_that_is_a_shell_is_no_use_by_its_answers)
{
    struct use u;

    use_init(&u, 0);
    T_OK(!look_take(&u, activity_take(command("agent", "sh", false, 1, 0, 100), 0), 3 * MIN));
    T_OK(!look_take(&u, activity_take(command("agent", "sh", false, 1, 0, 900), 0), 6 * MIN));
    use_done(&u);
}

TEST(calls_to_an_older_agent_may_be_the_monitors_own)
{
    struct use u;
    json_t *old = json_pack("{s:{s:i, s:i}, s:{s:i, s:[s]}}", "calls", "open", 1, "last_ms_ago", 5,
                            "commands", "running", 1, "ids", "agent");

    use_init(&u, 0);
    T_OK(!look_take(&u, old, 3 * MIN));
    use_done(&u);
}

/* The idle time begins with the end of the use, not with the look that finds it. */
TEST(the_last_use_has_its_time)
{
    struct use u;
    json_t *called = activity_take(NULL, 0);

    use_init(&u, 0);
    T_OK(look_take(&u, activity_take(command("x", "sleep", false, 1, 0, 0), 0), 3 * MIN));
    T_INT(u.used_ms, 3 * MIN);
    T_OK(!look_take(&u, activity_take(NULL, 0), 6 * MIN));
    T_INT(u.used_ms, 3 * MIN);
    (void)json_object_set_new(json_object_get(called, "calls"), "last_ms_ago",
                              json_integer(MIN / 2));
    T_OK(look_take(&u, called, 9 * MIN));
    T_INT(u.used_ms, 9 * MIN - MIN / 2);
    T_OK(!look_take(&u, activity_take(NULL, 0), 12 * MIN));
    T_INT(u.used_ms, 9 * MIN - MIN / 2);
    use_done(&u);
}
