#include "test.h"

#include "lib/box/lifecycle.h"

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
