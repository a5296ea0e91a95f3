#!/usr/bin/env bats
# Properties that archives keep (sparse files of every kind, attributes, owners), their limits, and the
# leftovers of a killed agent.
# early

load ../lib/agent

setup()
{
    start_agent
    D=$AGENT_DIR/d
    mkdir "$D"
}
teardown() { stop_agents; }

put() { agent_curl "/v1/archive?path=$2" -T "$1" "${@:3}"; }

@test "sparse files of every kind arrive with their holes, and leave with them" {
    local kind

    mkdir "$D/s"
    truncate -s 64M "$D/s/f"
    printf data | dd of="$D/s/f" bs=1 seek=1000000 conv=notrunc status=none
    printf data | dd of="$D/s/f" bs=1 seek=50000000 conv=notrunc status=none
    for kind in "gnu" "posix --sparse-version=0.0" "posix --sparse-version=0.1" "posix --sparse-version=1.0"; do
        # shellcheck disable=SC2086 # two words
        tar -C "$D/s" -S --format=$kind -cf "$AGENT_DIR/a.tar" f
        [ "$(stat -c %s "$AGENT_DIR/a.tar")" -lt 100000 ]
        put "$AGENT_DIR/a.tar" "$D/t" | jq -e '.entries == 1'
        cmp "$D/s/f" "$D/t/f" || fail "$kind"
        [ "$(stat -c %b "$D/t/f")" -lt 1000 ] || fail "$kind has no holes"
        rm -r "$D/t"
    done
    agent_curl "/v1/archive?path=$D/s" -o "$AGENT_DIR/b.tar"
    [ "$(stat -c %s "$AGENT_DIR/b.tar")" -lt 100000 ]
    mkdir "$D/u"
    tar -C "$D/u" -xf "$AGENT_DIR/b.tar"
    cmp "$D/s/f" "$D/u/f"
}

@test "attributes are kept both ways, and those that may not be set are not" {
    mkdir "$D/s"
    touch "$D/s/f"
    python3 -c "import os,sys; os.setxattr(sys.argv[1], 'user.note', b'a\0b')" "$D/s/f" || skip "no attributes here"
    agent_curl "/v1/archive?path=$D/s" -o "$AGENT_DIR/a.tar"
    put "$AGENT_DIR/a.tar" "$D/t" | jq -e '.lost_xattrs == 0'
    python3 -c "import os,sys; assert os.getxattr(sys.argv[1], 'user.note') == b'a\0b'" "$D/t/f"
    python3 - "$AGENT_DIR/b.tar" <<'PY'
import sys, tarfile
tf = tarfile.open(sys.argv[1], "w", format=tarfile.PAX_FORMAT)
ti = tarfile.TarInfo("f")
ti.mode = 0o6755
ti.pax_headers = {"SCHILY.xattr.trusted.x": "1", "SCHILY.xattr.security.selinux": "x", "SCHILY.xattr.user.ok": "1",
                  "SCHILY.acl.access": "user::rwx,user:nobody:rwx,group::r-x,other::r-x,mask::rwx"}
tf.addfile(ti)
tf.close()
PY
    put "$AGENT_DIR/b.tar" "$D/v" | jq -e '.lost_xattrs == 3'
    [ "$(python3 -c "import os,sys; print(os.listxattr(sys.argv[1]))" "$D/v/f")" = "['user.ok']" ]
    [ "$(stat -c %a "$D/v/f")" = 755 ]
}

@test "owners are the caller's, the archive's numbers, or the archive's names" {
    [ "$(id -u)" = 0 ] || skip "needs root"
    python3 - "$AGENT_DIR/a.tar" <<'PY'
import sys, tarfile
tf = tarfile.open(sys.argv[1], "w")
for name, user in (("known", "nobody"), ("unknown", "no-such-user")):
    ti = tarfile.TarInfo(name)
    ti.uid = ti.gid = 4321
    ti.uname, ti.gname = user, "nogroup"
    tf.addfile(ti)
tf.close()
PY
    put "$AGENT_DIR/a.tar" "$D/none" -o /dev/null
    put "$AGENT_DIR/a.tar" "$D/numbers&keep_owner=true" -o /dev/null
    put "$AGENT_DIR/a.tar" "$D/names&owner_names=true" -o /dev/null
    [ "$(stat -c %u:%g "$D/none/known")" = 0:0 ]
    [ "$(stat -c %u:%g "$D/numbers/known")" = 4321:4321 ]
    [ "$(stat -c %U:%G "$D/names/known")" = nobody:nogroup ]
    [ "$(stat -c %u:%G "$D/names/unknown")" = 4321:nogroup ]
    put "$AGENT_DIR/a.tar" "$D/his&owner_names=true&user=nobody" | jq -e '.code == "permission_denied"'
    # An owner that does not fit would become root or an arbitrary user.
    for id in 1099511627776 4294967295; do
        python3 - "$AGENT_DIR/b.tar" "$id" <<'PY'
import sys, tarfile
tf = tarfile.open(sys.argv[1], "w", format=tarfile.PAX_FORMAT)
ti = tarfile.TarInfo("f")
ti.pax_headers = {"uid": sys.argv[2]}
tf.addfile(ti)
tf.close()
PY
        put "$AGENT_DIR/b.tar" "$D/huge&keep_owner=true" | jq -e '.code == "invalid_argument"'
        [ ! -e "$D/huge" ]
    done
}

@test "past each limit there is a typed refusal, and the target is as it was" {
    python3 - "$AGENT_DIR" <<'PY'
import io, sys, tarfile
def make(name, entries, size=0):
    tf = tarfile.open(f"{sys.argv[1]}/{name}", "w", format=tarfile.GNU_FORMAT)
    for n in entries:
        ti = tarfile.TarInfo(n)
        tf.addfile(ti)
    tf.close()
make("deep", ["d/" * 256 + "f"])
make("name", ["n" * 256])
make("path", ["/".join(["n" * 200] * 85)])
make("removals", [".bellhop-tmp-x"])
ti = tarfile.TarInfo("huge")
ti.size = 65 << 30
open(f"{sys.argv[1]}/huge", "wb").write(ti.tobuf(format=tarfile.GNU_FORMAT))
PY
    mkdir "$D/t"
    touch -d 2001-02-03 "$D/t"
    for name in deep name path removals; do
        [ "$(agent_status "/v1/archive?path=$D/t" -T "$AGENT_DIR/$name")" = 400 ] || fail "$name"
    done
    [ "$(agent_status "/v1/archive?path=$D/t" -T "$AGENT_DIR/huge")" = 413 ]
    [ -z "$(ls -A "$D/t")" ]
    [ "$(stat -c %y "$D/t" | cut -c1-10)" = 2001-02-03 ]
}

# Any starting agent of root rolls back the notes in /var/lib/bellhop: here only this test's agents start.
run_alone()
{
    printf '#!/bin/sh\nexec unshare -m --propagation private sh -c "mount --bind %s /var/lib/bellhop && exec %s \\"\\$@\\"" sh "$@"\n' \
        "$AGENT_DIR/state" "$(realpath "$BELLHOPD")" >"$AGENT_DIR/alone"
    chmod 755 "$AGENT_DIR/alone"
    BELLHOPD=$AGENT_DIR/alone run_agent --listen 127.0.0.1:0 --token-file "$AGENT_DIR/token"
}

@test "the next agent takes back what a killed one was putting in place" {
    local i seen left=0 client

    export HOME=$AGENT_DIR
    mkdir "$AGENT_DIR/state"
    if [ "$(id -u)" = 0 ]; then
        unshare -m --propagation private true 2>/dev/null || skip "no mount namespaces"
        mkdir -p /var/lib/bellhop
    else
        run_alone() { run_agent --listen 127.0.0.1:0 --token-file "$AGENT_DIR/token"; }
    fi
    run_alone
    python3 - "$AGENT_DIR/a.tar" <<'PY'
import io, sys, tarfile
tf = tarfile.open(sys.argv[1], "w")
for i in range(20000):
    ti = tarfile.TarInfo(f"d{i % 50}/f{i}")
    ti.size = 3
    tf.addfile(ti, io.BytesIO(b"new"))
tf.close()
PY
    mkdir "$D/t"
    for i in $(seq 50); do mkdir "$D/t/d$i" && echo own >"$D/t/d$i/own"; done
    (cd "$D" && find t -printf '%p %T@ %i\n' | sort) >"$AGENT_DIR/before"
    for i in 1 2 3 1 2 3 1 2 3; do
        agent_curl "/v1/archive?path=$D/t" -T "$AGENT_DIR/a.tar" -o /dev/null 2>/dev/null &
        client=$!
        is_staged() { [ "$(find "$D/t"/.bellhop-tmp-* -maxdepth $((i / 2 + 1)) 2>/dev/null | wc -l)" -gt $((i * i)) ]; }
        is_time() { is_staged || ! kill -0 "$client"; }
        wait_until 10 is_time
        kill -9 "$AGENT_PID"
        wait_gone "$AGENT_PID" 10
        wait "$client" || true
        seen=$(find "$D/t" -maxdepth 2 -name '.bellhop-tmp-time')
        [ -z "$seen" ] || left=$((left + 1))
        run_alone
        [ -z "$(find "$D/t" -name '.bellhop-tmp*')" ] || fail "something is left"
        # Only a kill between the first and the last change counts.
        [ -n "$seen" ] || continue
        (cd "$D" && find t -printf '%p %T@ %i\n' | sort) | diff "$AGENT_DIR/before" -
        [ "$left" -lt 3 ] || break
    done
    [ "$left" -gt 0 ]
}
