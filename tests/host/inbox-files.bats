# early
# Files, watches, archives and search in a default box: on its overlay, as the root of a user namespace.

load ../lib/oci
load ../lib/inbox

setup_file() { inbox_setup_file; }
setup() { inbox_setup; }
teardown_file() { inbox_teardown_file; }

@test "inbox_files" { inner files.bats; }
@test "inbox_files_http" { inner files_http.bats; }
@test "inbox_files_upload" { inner files_upload.bats; }
@test "inbox_fs" { inner fs.bats; }
@test "inbox_fs_watch" { inner fs_watch.bats; }
@test "inbox_archive" { inner archive.bats; }
@test "inbox_search" { inner search.bats; }
