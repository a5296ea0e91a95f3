#include "test.h"

#include "common/clock.h"
#include "lib/box/bringup.h"
#include "lib/box/lifecycle.h"
#include "lib/provider/provider.h"

/* Every legal edge, written down a second time: the table itself is what is tested. */
static const struct {
    enum bh_state from, to;
} legal[] = {
    {BH_STATE_REQUESTED, BH_STATE_PROVISIONING}, {BH_STATE_REQUESTED, BH_STATE_DESTROYING},
    {BH_STATE_REQUESTED, BH_STATE_ERROR},        {BH_STATE_PROVISIONING, BH_STATE_BOOTSTRAPPING},
    {BH_STATE_PROVISIONING, BH_STATE_STOPPING},  {BH_STATE_PROVISIONING, BH_STATE_DESTROYING},
    {BH_STATE_PROVISIONING, BH_STATE_ERROR},     {BH_STATE_BOOTSTRAPPING, BH_STATE_RUNNING},
    {BH_STATE_BOOTSTRAPPING, BH_STATE_STOPPING}, {BH_STATE_BOOTSTRAPPING, BH_STATE_DESTROYING},
    {BH_STATE_BOOTSTRAPPING, BH_STATE_ERROR},    {BH_STATE_RUNNING, BH_STATE_PAUSING},
    {BH_STATE_RUNNING, BH_STATE_STOPPING},       {BH_STATE_RUNNING, BH_STATE_DESTROYING},
    {BH_STATE_RUNNING, BH_STATE_ERROR},          {BH_STATE_PAUSING, BH_STATE_PAUSED},
    {BH_STATE_PAUSING, BH_STATE_RUNNING},        {BH_STATE_PAUSING, BH_STATE_STOPPING},
    {BH_STATE_PAUSING, BH_STATE_DESTROYING},     {BH_STATE_PAUSING, BH_STATE_ERROR},
    {BH_STATE_PAUSED, BH_STATE_RESUMING},        {BH_STATE_PAUSED, BH_STATE_STOPPING},
    {BH_STATE_PAUSED, BH_STATE_DESTROYING},      {BH_STATE_PAUSED, BH_STATE_ERROR},
    {BH_STATE_RESUMING, BH_STATE_RUNNING},       {BH_STATE_RESUMING, BH_STATE_PAUSED},
    {BH_STATE_RESUMING, BH_STATE_STOPPING},      {BH_STATE_RESUMING, BH_STATE_DESTROYING},
    {BH_STATE_RESUMING, BH_STATE_ERROR},         {BH_STATE_STOPPING, BH_STATE_STOPPING},
    {BH_STATE_STOPPING, BH_STATE_STOPPED},       {BH_STATE_STOPPING, BH_STATE_DESTROYING},
    {BH_STATE_STOPPING, BH_STATE_ERROR},         {BH_STATE_STOPPED, BH_STATE_PROVISIONING},
    {BH_STATE_STOPPED, BH_STATE_DESTROYING},     {BH_STATE_STOPPED, BH_STATE_ERROR},
    {BH_STATE_DESTROYING, BH_STATE_DESTROYING},  {BH_STATE_DESTROYING, BH_STATE_DESTROYED},
    {BH_STATE_DESTROYING, BH_STATE_ERROR},       {BH_STATE_ERROR, BH_STATE_BOOTSTRAPPING},
    {BH_STATE_ERROR, BH_STATE_PROVISIONING},     {BH_STATE_ERROR, BH_STATE_STOPPING},
    {BH_STATE_ERROR, BH_STATE_DESTROYING},
};

static bool is_listed(enum bh_state from, enum bh_state to)
{
    for (size_t i = 0; i < sizeof(legal) / sizeof(legal[0]); i++)
        if (legal[i].from == from && legal[i].to == to)
            return true;
    return false;
}

TEST(every_legal_edge_is_accepted_and_every_other_refused)
{
    for (unsigned from = 0; from < LIFECYCLE_N_STATES; from++)
        for (unsigned to = 0; to < LIFECYCLE_N_STATES; to++)
            if (lifecycle_is_legal((enum bh_state)from, (enum bh_state)to) !=
                is_listed((enum bh_state)from, (enum bh_state)to))
                t_fail(__FILE__, __LINE__, "%s -> %s", bh_state_name((enum bh_state)from),
                       bh_state_name((enum bh_state)to));
}

TEST(a_state_that_does_not_exist_has_no_edges)
{
    T_OK(!lifecycle_is_legal((enum bh_state)99, BH_STATE_RUNNING));
    T_OK(!lifecycle_is_legal(BH_STATE_RUNNING, (enum bh_state)99));
    T_STR(bh_state_name((enum bh_state)99), "unknown");
}

TEST(every_state_is_found_by_its_name)
{
    for (unsigned s = 0; s < LIFECYCLE_N_STATES; s++)
        T_INT(lifecycle_parse(bh_state_name((enum bh_state)s)), s);
    T_INT(lifecycle_parse("no such state"), BH_STATE_UNKNOWN);
}

TEST(only_states_at_work_are_transitional)
{
    T_OK(lifecycle_is_transitional(BH_STATE_REQUESTED));
    T_OK(lifecycle_is_transitional(BH_STATE_DESTROYING));
    T_OK(!lifecycle_is_transitional(BH_STATE_RUNNING));
    T_OK(!lifecycle_is_transitional(BH_STATE_STOPPED));
    T_OK(!lifecycle_is_transitional(BH_STATE_ERROR));
}

/* Every word that a provider documents, written down a second time, by the state that it means. */
static const struct {
    const char *provider, *words;
    enum bh_state state;
} provider_words[] = {
    {"oci", "creating created", BH_STATE_PROVISIONING},
    {"oci", "running", BH_STATE_RUNNING},
    {"oci", "pausing", BH_STATE_PAUSING},
    {"oci", "paused", BH_STATE_PAUSED},
    {"oci", "restoring", BH_STATE_RESUMING},
    {"oci", "stopped", BH_STATE_STOPPED},
    {"docker", "created configured initialized restarting", BH_STATE_PROVISIONING},
    {"docker", "running", BH_STATE_RUNNING},
    {"docker", "paused", BH_STATE_PAUSED},
    {"docker", "stopping", BH_STATE_STOPPING},
    {"docker", "exited stopped", BH_STATE_STOPPED},
    {"docker", "removing", BH_STATE_DESTROYING},
    {"docker", "dead", BH_STATE_ERROR},
    {"process", "R S D I W K P t", BH_STATE_RUNNING},
    {"process", "T", BH_STATE_PAUSED},
    {"process", "Z X x", BH_STATE_STOPPED},
};

/* Counts the words of a provider that are as the list says. */
static size_t check_words(const struct provider *p)
{
    size_t n = 0;

    for (size_t i = 0; i < sizeof(provider_words) / sizeof(provider_words[0]); i++) {
        char words[64], *at = words, *word;

        if (strcmp(provider_words[i].provider, p->name) != 0)
            continue;
        (void)snprintf(words, sizeof(words), "%s", provider_words[i].words);
        for (; (word = strsep(&at, " ")); n++)
            if (provider_state(p, word) != provider_words[i].state)
                t_fail(__FILE__, __LINE__, "%s: %s is %s", p->name, word,
                       bh_state_name(provider_state(p, word)));
    }
    return n;
}

TEST(every_state_of_a_provider_is_one_of_ours_and_any_other_word_is_unknown)
{
    static const char *const others[] = {"", "Running", "run", "running ", "ended", "?", NULL};
    const struct provider *p;

    for (size_t i = 0; (p = provider_at(i)); i++) {
        size_t n = 0;

        T_OK(p->states); /* a provider without a table is not done */
        while (p->states[n].word)
            n++;
        T_INT(check_words(p), n);
        for (size_t k = 0; k < sizeof(others) / sizeof(others[0]); k++)
            T_INT(provider_state(p, others[k]), BH_STATE_UNKNOWN);
    }
}

TEST(a_start_may_take_five_minutes_or_four_times_the_silence_of_a_guest_agent)
{
    struct bh_ctx ctx = {.answer_timeout_ms = 0};
    int64_t now = clock_mono_ms();
    const struct {
        int64_t answer_ms, asked_ms, expected_ms;
    } rows[] = {
        {0, 0, 300000},     {30000, 0, 300000},   {75000, 0, 300000},
        {76000, 0, 304000}, {600000, 0, 2400000}, {600000, 1000, 1000},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        ctx.answer_timeout_ms = rows[i].answer_ms;
        T_OK(bringup_deadline(&ctx, rows[i].asked_ms) - now >= rows[i].expected_ms);
        T_OK(bringup_deadline(&ctx, rows[i].asked_ms) - clock_mono_ms() <= rows[i].expected_ms);
    }
}
