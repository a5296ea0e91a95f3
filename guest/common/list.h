#pragma once
/*
 * list: an intrusive doubly linked list. A struct embeds one `struct list_link` for each list that it can be
 * in; `struct list` is the head. Links are never owned. Thread-compatible: the caller guards the list.
 */
#include <stdbool.h>
#include <stddef.h>

struct list_link {
    struct list_link *prev, *next; /* both NULL: in no list */
};

struct list {
    struct list_link *first, *last;
    size_t n;
};

/* The struct around a link: LIST_OF(struct proc, link, p). NULL for NULL. */
#define LIST_OF(type, member, p) \
    __extension__({ \
        struct list_link *list_of_ = (p); \
        list_of_ ? (type *)(void *)((char *)list_of_ - offsetof(type, member)) : NULL; \
    })

static inline void list_append(struct list *l, struct list_link *x)
{
    x->prev = l->last;
    x->next = NULL;
    *(l->last ? &l->last->next : &l->first) = x;
    l->last = x;
    l->n++;
}

/* x must be in l. */
static inline void list_remove(struct list *l, struct list_link *x)
{
    *(x->prev ? &x->prev->next : &l->first) = x->next;
    *(x->next ? &x->next->prev : &l->last) = x->prev;
    x->prev = x->next = NULL;
    l->n--;
}

static inline bool list_has(const struct list *l, const struct list_link *x)
{
    return x->prev || x->next || l->first == x;
}

/* Removes and returns the first link; NULL when the list is empty. */
static inline struct list_link *list_take_first(struct list *l)
{
    struct list_link *x = l->first;

    if (x)
        list_remove(l, x);
    return x;
}

/* Each element, first to last; the body may remove the current one. */
#define LIST_EACH(type, member, var, l) \
    for (type *var = LIST_OF(type, member, (l)->first), \
              *next_##var = var ? LIST_OF(type, member, var->member.next) : NULL; \
         var; var = next_##var, next_##var = var ? LIST_OF(type, member, var->member.next) : NULL)

/* Each element, last to first; the body must not remove any. */
#define LIST_EACH_BACK(type, member, var, l) \
    for (type *var = LIST_OF(type, member, (l)->last); var; \
         var = LIST_OF(type, member, var->member.prev))
