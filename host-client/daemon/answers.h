#pragma once
/* answers: the functions of the rows of routes.def with job_ops, on a pool thread. Each fills job.reply. */
#include "daemon/job.h"

/* boxes.c */
int answer_list(struct job *j, struct err *e);
int answer_get(struct job *j, struct err *e);
int answer_by_key(struct job *j, struct err *e);
int answer_agent(struct job *j, struct err *e);
int answer_start_agent(struct job *j, struct err *e);
int answer_silence(struct job *j, struct err *e);
int answer_destroy(struct job *j, struct err *e);
int answer_pause(struct job *j, struct err *e);
int answer_resume(struct job *j, struct err *e);
int answer_start(struct job *j, struct err *e);
int answer_stop(struct job *j, struct err *e);

int answer_keep(struct job *j, struct err *e);

/* create.c */
int answer_create(struct job *j, struct err *e);
int answer_fork(struct job *j, struct err *e);
int answer_attach(struct job *j, struct err *e);
/* gateway.c */
int answer_list_files(struct job *j, struct err *e);

/* info.c */
int answer_info(struct job *j, struct err *e);

int answer_providers(struct job *j, struct err *e);
int providers_json(struct job *j, json_t **ret, struct err *e);

/* sandbox.c */
int answer_code(struct job *j, struct err *e);
int answer_sandbox_config(struct job *j, struct err *e);
int answer_set_sandbox_config(struct job *j, struct err *e);
int answer_backends(struct job *j, struct err *e);
int answer_debug(struct job *j, struct err *e);
int answer_set_debug(struct job *j, struct err *e);

/* openapi.c */
int answer_openapi(struct job *j, struct err *e);

/* facts.c */
int answer_environment(struct job *j, struct err *e);
int answer_health(struct job *j, struct err *e);
int answer_activity(struct job *j, struct err *e);
int answer_ports(struct job *j, struct err *e);
int answer_url(struct job *j, struct err *e);
int answer_status(struct job *j, struct err *e);
int answer_ready(struct job *j, struct err *e);
int answer_metrics(struct job *j, struct err *e);
int answer_logs(struct job *j, struct err *e);

/* snapshots.c */
int answer_snapshots(struct job *j, struct err *e);
int answer_snapshot(struct job *j, struct err *e);
int answer_make_snapshot(struct job *j, struct err *e);
int answer_remove_snapshot(struct job *j, struct err *e);
int answer_verify_snapshot(struct job *j, struct err *e);
int answer_restore(struct job *j, struct err *e);

/* machine.c */
int answer_history(struct job *j, struct err *e);
int answer_records(struct job *j, struct err *e);
int answer_record(struct job *j, struct err *e);
int answer_images(struct job *j, struct err *e);
int answer_image(struct job *j, struct err *e);
int answer_build_image(struct job *j, struct err *e);
int answer_remove_image(struct job *j, struct err *e);
int answer_gc(struct job *j, struct err *e);
int answer_config(struct job *j, struct err *e);

/* rights.c */
int answer_access(struct job *j, struct err *e);
int answer_tokens(struct job *j, struct err *e);
int answer_make_token(struct job *j, struct err *e);
int answer_revoke_token(struct job *j, struct err *e);
int answer_quotas(struct job *j, struct err *e);
int answer_set_quota(struct job *j, struct err *e);
int answer_remove_quota(struct job *j, struct err *e);
int answer_sign_url(struct job *j, struct err *e);
int answer_open_ports(struct job *j, struct err *e);
int answer_open_port(struct job *j, struct err *e);
int answer_close_port(struct job *j, struct err *e);
int answer_audit(struct job *j, struct err *e);
int answer_verify_audit(struct job *j, struct err *e);

/* A box as all replies have it; NULL: out of memory. */
json_t *box_json(struct bh_box *box);
