#include "test.h"

#include <stdio.h>

#include "common/cleanup.h"
#include "common/str.h"
#include "proc/registry.h"

#define MANY 100000

/* As many as one request can bring: a quadratic algorithm exceeds the time limit. */
TEST(environ_takes_very_many_and_the_last_of_a_name_counts)
{
    _cleanup_strv_ char **env = NULL;
    struct strv_list settings = {0};
    struct err e = {0};
    char text[32];

    T_INT(strv_push(&env, "HOME=/root", &e), 0);
    T_INT(strv_push(&env, "V7=0", &e), 0);
    for (int i = 0; i < 2 * MANY; i++) {
        (void)snprintf(text, sizeof(text), "V%d=%d", i % MANY, 1 + i / MANY);
        T_INT(strv_list_add(&settings, text, &e), 0);
    }
    T_INT(environ_set_all(&env, settings.v, &e), 0);
    T_INT((long long)strv_len(env), MANY + 1);
    T_STR(env[0], "HOME=/root");
    T_STR(env[1], "V7=2"); /* in its place */
    T_STR(env[2], "V0=2");
    T_STR(env[MANY], "V99999=2");
    strv_free(settings.v);
}

TEST(environ_tells_names_apart_by_all_of_them)
{
    char a[] = "A=1", ab[] = "AB=2", a2[] = "A=3", b[] = "B=A=4", ab2[] = "AB=";
    char *const settings[] = {a, ab, a2, b, ab2, NULL};
    _cleanup_strv_ char **env = NULL;

    T_INT(environ_set_all(&env, NULL, NULL), 0);
    T_OK(!env);
    T_INT(environ_set_all(&env, settings, NULL), 0);
    T_INT((long long)strv_len(env), 3);
    T_STR(env[0], "A=3");
    T_STR(env[1], "AB=");
    T_STR(env[2], "B=A=4");
}
