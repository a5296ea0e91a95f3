#pragma once
/*
 * oci_layers: the content of a box's disk as layers of layer_store.h, and a disk made of such
 * layers. The layers lie between the image and the box's own upper directory. Which ones a disk has
 * is recorded within its directory (oci/disk/layers.json), so that both change at once.
 */
#include "common/err.h"
#include "lib/provider/oci/record.h"
#include "lib/provider/provider.h"

int oci_layers_check(struct provider_box *b, struct err *e);
int oci_layers_capture(struct provider_box *b, struct provider_capture *c, struct err *e);
/* Makes oci/disk of a new box, and fills in disk->uid, gid and user; disk->base is given. */
int oci_layers_prepare(const struct provider_box *b, struct oci_disk *disk, struct err *e);
/* The same for a box that has a disk. It is killed at any point: the old disk, or the new one. */
int oci_layers_restore(struct provider_box *b, const struct provider_source *source, struct err *e);
/* 1: the box has the disk of source->tag; 0: the one before. Removes the other one. */
int oci_layers_has_restored(struct provider_box *b, const char *tag, struct err *e);
/* The directories of the disk's layers, the lowest first. Checks the manifest of each. */
int oci_layers_trees(const struct provider_box *b, char ***ret, struct err *e);
