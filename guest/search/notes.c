#include "search/notes.h"

#include <stdlib.h>
#include <string.h>

void notes_init(struct notes *n)
{
    *n = (struct notes){.total = 0};
    (void)pthread_mutex_init(&n->lock, NULL);
}

void notes_done(struct notes *n)
{
    for (size_t i = 0; i < n->n; i++) {
        free(n->list[i].path);
        free(n->list[i].error);
    }
    n->n = 0;
    (void)pthread_mutex_destroy(&n->lock);
}

void notes_add(struct notes *n, const char *path, const char *error)
{
    struct note note = {.path = strdup(path), .error = strdup(error)};

    (void)pthread_mutex_lock(&n->lock);
    n->total++;
    if (n->n < NOTES_MAX && note.path && note.error) {
        n->list[n->n++] = note;
        note = (struct note){NULL, NULL};
    }
    (void)pthread_mutex_unlock(&n->lock);
    free(note.path);
    free(note.error);
}

void notes_add_errno(struct notes *n, const char *path, int sys)
{
    struct err e = {0};
    const char *text = e.message;

    (void)err_sys(&e, sys, "%s", "");
    if (text[0] == ':' && text[1] == ' ')
        text += 2; /* err_sys() writes "subject: reason"; here the path is the subject */
    notes_add(n, path, text);
}
