#!/bin/sh
# container.sh ENGINE VERB IMAGE_DIR WORK_DIR: boots the image in Docker or Podman, from its OCI archive.
set -eu

engine=$1
verb=$2
image=$3
work=$4
# shellcheck source=image/forms/lib.sh
. "$(dirname "$0")/lib.sh"
name=$(basename "$work")

probe()
{
    need_program "$engine"
    "$engine" version >"$work/version" 2>&1 ||
        no_engine "$engine does not answer: $(tail -n 1 "$work/version")"
}

# The name of the loaded image; the file `loaded` means that it was not there before.
load()
{
    "$engine" images --no-trunc --quiet >"$work/before"
    ref=$("$engine" load --input "$image/oci.tar" | sed -n 's/^Loaded image[^:]*: //p' | tail -n 1)
    [ -n "$ref" ] || {
        echo "$engine could not load $image/oci.tar"
        exit 1
    }
    echo "$ref" >"$work/ref"
    id=$("$engine" image inspect --format '{{.Id}}' "$ref")
    grep -qF "${id#sha256:}" "$work/before" || : >"$work/loaded"
}

# Publishes the agent's port on this machine's loopback only.
start()
{
    ref=${image_ref:-}
    if [ -z "$ref" ]; then
        need_file "$image/oci.tar"
        load
    fi
    make_token "$work/run"
    "$engine" run --detach --name "$name" --publish "127.0.0.1::$agent_port" \
        --volume "$work/run:/run/bellhop:ro" "$ref" >"$work/id"
    wait_for_agent
}

# Do not wait for a container that has ended.
wait_for_agent()
{
    tries=300
    while [ "$tries" -gt 0 ]; do
        if [ "$("$engine" inspect --format '{{.State.Running}}' "$name")" != true ]; then
            echo "the container ended: $("$engine" logs --tail 1 "$name" 2>&1)"
            exit 1
        fi
        at=$("$engine" port "$name" "$agent_port/tcp" 2>/dev/null | head -n 1)
        if [ -n "$at" ] && curl -sf --noproxy '*' --max-time 2 -o /dev/null "http://$at/v1/health"; then
            echo "http://$at" >"$work/url"
            return 0
        fi
        sleep 0.2
        tries=$((tries - 1))
    done
    echo "the agent in the container does not answer: $("$engine" logs --tail 1 "$name" 2>&1)"
    exit 1
}

stop()
{
    [ ! -e "$work/id" ] || "$engine" rm --force --volumes "$name" >/dev/null
    [ ! -e "$work/loaded" ] || "$engine" rmi --force "$(cat "$work/ref")" >/dev/null
    rm -rf "$work/run" "$work/id" "$work/loaded" "$work/token" "$work/url"
}

case $verb in
probe) probe ;;
start) start ;;
log) "$engine" logs --tail 20 "$name" 2>&1 ;;
stop) stop ;;
esac
