#include "test.h"

#include "common/user.h"

TEST(user_is_found_by_name_number_and_pair)
{
    struct user u = {0};
    struct err e = {0};

    T_INT(user_find("root", &u, &e), 0);
    T_INT(u.uid, 0);
    T_STR(u.name, "root");
    T_OK(u.n_groups >= 1 && u.groups[0] == 0);
    user_done(&u);
    T_INT(user_find("0", &u, &e), 0);
    T_STR(u.name, "root");
    user_done(&u);
    T_INT(user_find("3999999999:77", &u, &e), 0);
    T_INT(u.uid, 3999999999u);
    T_INT(u.gid, 77);
    T_STR(u.home, "/");
    T_INT(u.n_groups, 1);
    T_INT(u.groups[0], 77);
    user_done(&u);
}

TEST(user_that_is_none_is_refused_by_field)
{
    static const char *const names[] = {"", "nobody-by-this-name", "-1", "4294967295", "0:x", ":0"};
    struct user u = {0};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct err e = {0};

        T_INT(user_find(names[i], &u, &e), -ERR_NOT_FOUND);
        T_STR(e.field, "user");
    }
}
