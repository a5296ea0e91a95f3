#include "common/mem.h"

#include <stdlib.h>

#include "common/cleanup.h"
#include "common/list.h"
#include "test.h"

TEST(array_grow_doubles_up_to_its_maximum_and_then_leaves_the_array_alone)
{
    _cleanup_free_ int *v = NULL;
    size_t cap = 0;
    struct err e = {0};

    T_INT(array_grow(&v, &cap, 1, 20, &e), 0);
    T_INT(cap, 8);
    v[7] = 77;
    T_INT(array_grow(&v, &cap, 9, 20, &e), 0);
    T_INT(cap, 16);
    T_INT(v[7], 77);
    T_INT(array_grow(&v, &cap, 17, 20, &e), 0);
    T_INT(cap, 20);
    T_INT(array_grow(&v, &cap, 21, 20, &e), -ERR_EXHAUSTED);
    T_INT(cap, 20);
    T_INT(v[7], 77);
}

struct item {
    int n;
    struct list_link link;
};

TEST(list_keeps_its_order_and_its_count_while_elements_come_and_go)
{
    struct list l = {0};
    struct item a = {.n = 1}, b = {.n = 2}, c = {.n = 3};
    int sum = 0;

    T_OK(!list_take_first(&l));
    list_append(&l, &a.link);
    T_OK(list_has(&l, &a.link));
    list_append(&l, &b.link);
    list_append(&l, &c.link);
    T_INT(l.n, 3);
    LIST_EACH (struct item, link, it, &l) {
        sum = sum * 10 + it->n;
        if (it->n == 2)
            list_remove(&l, &it->link);
    }
    T_INT(sum, 123);
    T_OK(!list_has(&l, &b.link));
    T_INT(LIST_OF(struct item, link, list_take_first(&l))->n, 1);
    T_INT(LIST_OF(struct item, link, list_take_first(&l))->n, 3);
    T_INT(l.n, 0);
    T_OK(!l.first && !l.last);
}
