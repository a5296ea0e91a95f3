# `--image host`: the programs of this machine, and nothing else of it.
# early

load ../lib/oci

setup_file() { oci_setup_file; }
setup()
{
    oci_setup
    PLANTED=()
    MARK=bellhop-planted-$(od -An -tx1 -N 12 /dev/urandom | tr -d ' \n')
}
teardown()
{
    local path

    for path in "${PLANTED[@]}"; do
        rm -rf -- "$path"
    done
    oci_teardown
}

A=00000000000000aa

# plant PATH MODE: a file of ours with the mark; only where there was none.
plant()
{
    local dir top

    [ ! -e "$1" ] || fail "'$1' is there already"
    dir=$(dirname "$1")
    top=$1
    while [ ! -e "$dir" ]; do
        top=$dir
        dir=$(dirname "$dir")
    done
    mkdir -p "$(dirname "$1")"
    PLANTED+=("$top")
    printf '%s\n' "${3:-}$MARK" >"$1"
    chmod "$2" "$1"
}

@test "hostimage_shows_no_secret_planted_in_20_places" {
    n=bellhop-test-$$
    plant "/root/.$n" 0644
    plant "/root/.ssh-$n/id_rsa" 0600
    plant "/home/$n/.netrc" 0644
    plant "/home/$n/.aws/credentials" 0600
    plant "/srv/$n" 0644
    plant "/mnt/$n" 0644
    plant "/media/$n" 0644
    plant "/boot/$n" 0644
    plant "/var/lib/$n/db" 0644
    plant "/var/log/$n.log" 0644
    plant "/var/cache/$n" 0644
    plant "/var/spool/$n" 0644
    plant "/var/tmp/$n" 0644
    plant "/tmp/$n" 0644
    plant "/run/$n" 0644
    plant "/etc/$n" 0644
    plant "/etc/ssl/private/$n.key" 0644
    plant "/etc/ssl/certs/$n.pem" 0644 '-----BEGIN PRIVATE KEY-----'
    plant "/etc/ssl/certs/$n.key" 0644
    plant "/etc/default/$n" 0644
    plant "/etc/skel/$n" 0600
    plant "/usr/local/etc/$n" 0600
    plant "/opt/$n/secret" 0600
    plant "/$n" 0644
    [ "${#PLANTED[@]}" -ge 20 ]
    drive prepare "$A" image=host
    BOXES+=("$A")
    box_start "$A" image=host
    # /usr and /opt are large: there only what was planted is looked at
    [ "$(in_box "$A" "grep -rsl --exclude-dir=proc --exclude-dir=sys --exclude-dir=usr --exclude-dir=dev --devices=skip -- '$MARK' / | wc -l")" = 0 ]
    for path in "/usr/local/etc/$n" "/opt/$n/secret"; do
        refused in_box "$A" "cat $path"
        [[ "$output" != *"$MARK"* ]]
    done
}

@test "hostimage_has_no_account_or_key_file_of_the_host" {
    drive prepare "$A" image=host
    BOXES+=("$A")
    box_start "$A" image=host
    [ "$(in_box "$A" 'ls -d /etc/shadow /etc/gshadow /etc/sudoers /etc/ssh /etc/machine-id /etc/ssl/private 2>/dev/null | wc -l')" = 0 ]
    [ "$(in_box "$A" 'ls -A /root /srv /mnt /media /var/lib /var/log | grep -v : | grep -c .')" = 0 ]
    [ "$(in_box "$A" 'cut -d : -f 1 /etc/passwd | tail -n 1')" = user ]
}

@test "hostimage_runs_the_hosts_programs_and_cannot_change_them" {
    drive prepare "$A" image=host
    BOXES+=("$A")
    box_start "$A" image=host
    [ "$(as_user "$A" 'sh -c "echo works"; cd /workspace && touch x && ls')" = "$(printf 'works\nx')" ]
    refused in_box "$A" 'touch /usr/bin/x'
    refused in_box "$A" 'touch /opt/x'
    [ "$(as_user "$A" 'git --version')" = "$(git --version)" ]
}

@test "hostimage_refuses_a_state_directory_that_boxes_would_see" {
    mkdir "/opt/bellhop-test-$$"
    PLANTED+=("/opt/bellhop-test-$$")
    run "$DRIVE" "/opt/bellhop-test-$$" "$AGENT" prepare image=host
    [ "$status" -eq 1 ]
    [[ "$output" == "failed_precondition: image: image 'host' would show the state directory"* ]]
}
