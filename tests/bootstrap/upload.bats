# A project's way into a box, through the real agent: what comes, what stays, what is said.
# early

load ../lib/box
load ../lib/coding
bats_require_minimum_version 1.5.0

setup()
{
    box_setup
    PROJECT=$BOX_TMP/project
    make_dirty_project "$PROJECT"
}
teardown() { box_teardown; }

up() # [OPTION...]
{
    bellhop up --name box --provider process --agent none --json "$@" "$PROJECT" \
        >"$BOX_TMP/up.json" 2>"$BOX_TMP/said"
    WORKDIR=$(bellhop exec -n box -- pwd)
}

@test "a dirty tree is as dirty in the box" {
    up
    [ "$(git -C "$WORKDIR" status --porcelain)" = "$(git -C "$PROJECT" status --porcelain)" ]
    [ -n "$(git -C "$PROJECT" status --porcelain)" ]
    [ ! -e "$WORKDIR/build" ]
    [ "$("$WORKDIR/run.sh")" = ran ]
}

@test "names that are not UTF-8, links, modes and times arrive as they are" {
    odd=$(printf 'od\377d\nname')
    echo odd >"$PROJECT/$odd"
    ln -s ../nowhere "$PROJECT/link"
    touch -d '2001-02-03 04:05:06.789' "$PROJECT/kept.txt"
    chmod 0640 "$PROJECT/kept.txt"
    up
    [ "$(cat "$WORKDIR/$odd")" = odd ]
    [ "$(readlink "$WORKDIR/link")" = ../nowhere ]
    [ "$(stat -c '%a %.Y' "$WORKDIR/kept.txt")" = "$(stat -c '%a %.Y' "$PROJECT/kept.txt")" ]
}

@test "untracked files that look like secrets stay, and that is said" {
    echo s >"$PROJECT/.env"
    mkdir "$PROJECT/keys"
    echo s >"$PROJECT/keys/id_ed25519"
    up
    [ ! -e "$WORKDIR/.env" ]
    [ ! -e "$WORKDIR/keys/id_ed25519" ]
    grep -q 'not uploaded, it looks like a secret: .env$' "$BOX_TMP/said"
    grep -q 'not uploaded, it looks like a secret: keys/id_ed25519$' "$BOX_TMP/said"
}

@test "secrets that are asked for come along" {
    echo s >"$PROJECT/.env"
    up --with-secrets
    [ "$(cat "$WORKDIR/.env")" = s ]
    ! grep -q secret "$BOX_TMP/said"
}

@test "--git none brings no history, --git shallow one commit" {
    git -C "$PROJECT" -c user.name=t -c user.email=t@example.org commit -qam second
    echo again >>"$PROJECT/changed.txt"
    up --git none
    [ ! -e "$WORKDIR/.git" ]
    bellhop rm box
    up --git shallow
    [ "$(git -C "$WORKDIR" rev-list --count HEAD)" = 1 ]
    [ "$(git -C "$WORKDIR" status --porcelain)" = "$(git -C "$PROJECT" status --porcelain)" ]
}

@test "no file from behind a link and no other repository is uploaded" {
    mkdir "$BOX_TMP/outside" "$PROJECT/keys"
    echo SECRET >"$BOX_TMP/outside/id_rsa"
    echo x >"$PROJECT/keys/id_rsa"
    git -C "$PROJECT" add keys
    rm -r "$PROJECT/keys"
    ln -s ../outside "$PROJECT/keys"
    up
    [ -L "$WORKDIR/keys" ]
    [ ! -e "$WORKDIR/keys/id_rsa" ]
    run grep -r SECRET "$WORKDIR"
    [ "$status" -eq 1 ]
    bellhop rm box

    git -C "$PROJECT" remote add origin https://me:SECRET@example.org/x
    mkdir "$BOX_TMP/thief"
    echo "gitdir: $PROJECT/.git" >"$BOX_TMP/thief/.git"
    PROJECT=$BOX_TMP/thief
    run up
    [ "$status" -ne 0 ]
    grep -q -e '--git none' "$BOX_TMP/said" "$BOX_TMP/up.json"
    bellhop rm box 2>/dev/null || true
    up --git none
    run grep -r SECRET "$WORKDIR"
    [ "$status" -eq 1 ]
}

@test "an upload of 1 GB needs less than 32 MB of memory" {
    rm -rf "$PROJECT"
    mkdir "$PROJECT"
    head -c 1G /dev/zero | openssl enc -aes-128-ctr -pass pass:x -nosalt 2>/dev/null >"$PROJECT/big"
    for i in $(seq 300); do echo "$i" >"$PROJECT/$i"; done
    up_rss=$(python3 - "$BELLHOP" "$PROJECT" <<'PY'
import resource, subprocess, sys
subprocess.run([sys.argv[1], "up", "--name", "box", "--provider", "process", "--agent", "none",
                "--json", sys.argv[2]], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
PY
    )
    WORKDIR=$(bellhop exec -n box -- pwd)
    [ "$(stat -c %s "$WORKDIR/big")" = "$(stat -c %s "$PROJECT/big")" ]
    [ -e "$WORKDIR/300" ]
    echo "$up_rss kB"
    [ "$up_rss" -lt 32768 ]
}
