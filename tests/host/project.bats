# A box remembers its project: two projects of one name are two boxes. With the process provider.

load ../lib/box

setup()
{
    box_setup
    mkdir -p "$BOX_TMP/one/app" "$BOX_TMP/two/app"
    echo one >"$BOX_TMP/one/app/file"
    echo two >"$BOX_TMP/two/app/file"
}
teardown()
{
    box_teardown
}

# up [OPTION...] [DIR]: prints the box's name.
up()
{
    bellhop up --json --provider process --agent none "$@" 2>"$BOX_TMP/said" | jq -r .name
}

# file NAME: what the box has of its project.
file()
{
    bellhop exec "$1" -- cat file
}

@test "two directories of one name are two boxes with their own files, and the second says so" {
    [ "$(up "$BOX_TMP/one/app")" = app ]
    [ ! -s "$BOX_TMP/said" ] || ! grep -q 'another project' "$BOX_TMP/said"
    second=$(up "$BOX_TMP/two/app")
    [[ "$second" =~ ^app-[0-9a-f]{6}$ ]]
    grep -qF "'$BOX_TMP/one/app'" "$BOX_TMP/said"
    grep -qF "'$second'" "$BOX_TMP/said"
    [ "$(file app)" = one ]
    [ "$(file "$second")" = two ]
}

@test "up in a project's directory finds its box again, whichever others have come and gone" {
    up "$BOX_TMP/one/app"
    second=$(up "$BOX_TMP/two/app")
    (cd "$BOX_TMP/two/app" && [ "$(up)" = "$second" ])
    ln -s two "$BOX_TMP/link"
    [ "$(up "$BOX_TMP/link/app")" = "$second" ]
    bellhop rm app
    [ "$(up "$BOX_TMP/two/app")" = "$second" ]
    [ "$(up "$BOX_TMP/one/app")" = app ]
    [ "$(bellhop ls -q | wc -l)" -eq 2 ]
}

@test "names that become the same are two boxes" {
    mkdir "$BOX_TMP/A_b" "$BOX_TMP/a-b"
    first=$(up "$BOX_TMP/A_b")
    second=$(up "$BOX_TMP/a-b")
    [ "$first" = a-b ]
    [[ "$second" =~ ^a-b-[0-9a-f]{6}$ ]]
}

@test "a long name has room for its hash" {
    long=$(printf 'x%.0s' $(seq 100))
    mkdir "$BOX_TMP/one/$long" "$BOX_TMP/two/$long"
    first=$(up "$BOX_TMP/one/$long")
    second=$(up "$BOX_TMP/two/$long")
    [ "${#first}" -eq 63 ]
    [ "${#second}" -eq 63 ]
    [ "$first" != "$second" ]
}

@test "a name that is said and that another project's box has is an error that names both" {
    up --name mine "$BOX_TMP/one/app"
    run bash -c "'$BELLHOP' up --json --name mine --provider process --agent none '$BOX_TMP/two/app' 2>/dev/null"
    [ "$status" -ne 0 ]
    [ "$(jq -r .error.field <<<"$output")" = project ]
    [[ "$output" == *"$BOX_TMP/one/app"* ]]
    [[ "$output" == *"$BOX_TMP/two/app"* ]]
    [ "$(file mine)" = one ]
    [ "$(up --name mine "$BOX_TMP/one/app")" = mine ]
    [ "$(up --name mine --empty)" = mine ]
}

@test "a box that was made empty is its directory's too" {
    (cd "$BOX_TMP/one/app" && [ "$(up --empty)" = app ])
    run bellhop exec app -- cat file
    [ "$status" -ne 0 ]
    [ "$(up "$BOX_TMP/one/app")" = app ]
    [[ "$(up "$BOX_TMP/two/app")" =~ ^app-[0-9a-f]{6}$ ]]
}

@test "status has the project's path and its git remote without a password" {
    git -C "$BOX_TMP/one/app" init -q
    git -C "$BOX_TMP/one/app" remote add origin https://me:hunter2@example.org/team/app.git
    up "$BOX_TMP/one/app"
    bellhop status app --json | jq -e --arg path "$BOX_TMP/one/app" \
        '.project == {path: $path, remote: "https://example.org/team/app.git"}'
    run bellhop status app
    [[ "$output" == *"project path"*"$BOX_TMP/one/app"* ]]
    ! grep -aq hunter2 "$BELLHOP_STATE_DIR"/store.db*
}

@test "two repositories of one name are two boxes, and the same one with .git is one" {
    for dir in one two; do
        git -C "$BOX_TMP/$dir/app" init -q
        git -C "$BOX_TMP/$dir/app" add file
        git -C "$BOX_TMP/$dir/app" -c user.name=t -c user.email=t@example.org commit -qm first
    done
    [ "$(up --repo "file://$BOX_TMP/one/app")" = app ]
    second=$(up --repo "file://$BOX_TMP/two/app")
    [[ "$second" =~ ^app-[0-9a-f]{6}$ ]]
    [ "$(file "$second")" = two ]
    [ "$(up --repo "file://$BOX_TMP/one/app/.git/")" = app ]
    # The repository's directory is not the clone of it.
    [[ "$(up "$BOX_TMP/one/app")" =~ ^app-[0-9a-f]{6}$ ]]
}

@test "many ups of two projects of one name at once make two boxes" {
    for i in $(seq 5); do
        for dir in one two; do
            "$BELLHOP" up -q --json --provider process --agent none "$BOX_TMP/$dir/app" >"$BOX_TMP/$dir.$i" 2>&1 &
            pids+=($!)
        done
    done
    for pid in "${pids[@]}"; do
        wait "$pid"
    done
    [ "$(bellhop ls -q | wc -l)" -eq 2 ]
    [ "$(jq -r .name "$BOX_TMP"/one.* | sort -u | wc -l)" -eq 1 ]
    [ "$(file "$(jq -r .name "$BOX_TMP/one.1")")" = one ]
    [ "$(file "$(jq -r .name "$BOX_TMP/two.1")")" = two ]
}

@test "a box of an older store is kept, and its next up says whose it is" {
    up "$BOX_TMP/one/app"
    bellhop stop app
    python3 - "$BELLHOP_STATE_DIR/store.db" <<'PY'
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
    db.execute(f"DROP TRIGGER {name}")
for table in ("keys", "claims", "events", "records", "snapshots", "layer_uses", "tokens", "quotas", "open_ports",
              "webhooks", "layers"):
    db.execute(f"DROP TABLE {table}")
for column in ("project", "remote", "updated_ms", "paused_ms", "resumed_ms", "used_ms", "transcript"):
    db.execute(f"ALTER TABLE boxes DROP COLUMN {column}")
db.execute("PRAGMA user_version = 1")
db.commit()
PY
    [ "$(bellhop status app --json | jq -c .project)" = null ]
    [ "$(file app)" = one ]
    [ "$(up "$BOX_TMP/one/app")" = app ]
    [ "$(bellhop status app --json | jq -r .project.path)" = "$BOX_TMP/one/app" ]
    [[ "$(up "$BOX_TMP/two/app")" =~ ^app-[0-9a-f]{6}$ ]]
}
