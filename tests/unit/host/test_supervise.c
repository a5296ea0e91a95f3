#include "test.h"

#include "monitor/supervise.h"

TEST(pauses_between_restarts_double_from_half_a_second_to_fifteen)
{
    static const int64_t expected[] = {500, 1000, 2000, 4000, 8000, 15000, 15000};

    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++)
        T_INT(supervise_pause_ms((int)i), expected[i]);
    T_INT(supervise_pause_ms(1000000), 15000);
}
