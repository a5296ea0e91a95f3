/*
 * files: two writers that do not lose each other's updates, an edit, a search, a watch.
 *     cc files.c -o files -lbellhop && ./files STATE_DIR CACHE_DIR BOX
 */
#include <bellhop/bellhop.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int print_match(void *arg, const struct bh_match *m)
{
    (void)arg;
    printf("%s:%llu: %.*s\n", m->path, (unsigned long long)m->line, (int)m->text_len, m->text);
    return 0;
}

static int print_file(void *arg, const struct bh_file_info *f)
{
    (void)arg;
    printf("%s: %s of %llu bytes, mode %o\n", f->name, f->type, (unsigned long long)f->bytes,
           f->mode);
    return 0;
}

static int print_bytes(void *arg, const char *data, size_t len)
{
    (void)arg;
    return fwrite(data, 1, len, stdout) == len ? 0 : -1;
}

static int see(void *arg, const struct bh_watch_event *event)
{
    (void)arg;
    printf("watching: %s\n", event->type);
    return 1; /* enough */
}

/* Writes only if the file still has the tag; reports a lost race. */
static int write_if(struct bh_box *box, const char *text, const char *tag, char *new_tag,
                    struct bh_error *e)
{
    struct bh_file_write_options w = {.size = sizeof(w), .path = "notes/list.txt", .data = text};

    w.len = strlen(text);
    w.digest = true;
    w.if_match = tag;
    w.if_none_match = tag ? NULL : "*";
    return bh_file_write(box, &w, new_tag, e);
}

static int use(struct bh_box *box, struct bh_error *e)
{
    const struct bh_edit edit = {"milk", "bread", 1, false};
    struct bh_edit_options change = {.size = sizeof(change), .path = "notes/list.txt"};
    struct bh_search_options grep = {.size = sizeof(grep), .pattern = "b[a-z]+", .path = "notes"};
    struct bh_file_read_options part = {.size = sizeof(part), .path = "notes/list.txt"};
    struct bh_file_list_options list = {.size = sizeof(list), .path = "notes"};
    struct bh_file_change_options tree = {.size = sizeof(tree), .recursive = true};
    struct bh_watch_options watch = {.size = sizeof(watch), .path = "notes"};
    struct bh_edit_result edited = {.size = sizeof(edited)};
    struct bh_search_result found = {.size = sizeof(found)};
    char first[BH_ETAG_BYTES], second[BH_ETAG_BYTES];

    if (write_if(box, "milk\n", NULL, first, e) < 0 ||
        write_if(box, "milk\nbutter\n", first, second, e) < 0)
        return -1;
    if (write_if(box, "lost\n", first, NULL, e) != -BH_ABORTED)
        return -1;
    printf("the second writer hears: %s\n", bh_code_name(e->code));

    change.edits = &edit;
    change.n_edits = 1;
    change.if_match = second;
    if (bh_file_edit(box, &change, &edited, e) < 0 ||
        bh_grep(box, &grep, print_match, NULL, &found, e) < 0)
        return -1;
    printf("%s%llu matches\n", edited.diff, (unsigned long long)found.found);
    free(edited.diff);
    free(found.cursor);
    free(found.json);

    part.offset = 6;
    part.length = 3;
    part.write = print_bytes;
    if (bh_file_read(box, &part, NULL, e) < 0 || bh_file_list(box, &list, print_file, NULL, e) < 0)
        return -1;
    if (bh_file_watch(box, &watch, see, NULL, e) != -BH_CANCELED)
        return -1;
    return bh_file_remove(box, "notes", &tree, e);
}

int main(int argc, char **argv)
{
    struct bh_options opts = {.size = sizeof(opts)};
    struct bh_error e = {0};
    struct bh_ctx *ctx = NULL;
    struct bh_box *box = NULL;
    int r;

    if (argc != 4)
        return 2;
    opts.state_dir = argv[1];
    opts.cache_dir = argv[2];
    r = bh_open(&opts, &ctx, &e);
    if (r == 0)
        r = bh_get(ctx, argv[3], &box, &e);
    if (r == 0)
        r = use(box, &e);
    if (r < 0)
        fprintf(stderr, "%s: %s\n", bh_code_name(e.code), e.message);
    bh_box_free(box);
    bh_close(ctx);
    return r < 0 ? 1 : 0;
}
