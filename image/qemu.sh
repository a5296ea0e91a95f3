#!/bin/sh
# qemu.sh start IMAGE RUN [OPTION...]  boots the image directory IMAGE (kernel, initramfs and rootfs.squashfs
#                                      or disk.ext4; image/vm.sh makes them) in QEMU, waits until the agent
#                                      answers, and prints its URL and token
# qemu.sh stop RUN [SECONDS]           presses the power button and waits (default 60 s); fails, and kills it,
#                                      if it has not ended by then
#   --root squashfs|disk  what to boot (default squashfs if it exists); changes are lost at the end
#   --disk FILE           boot this disk, and write to it
#   --accel kvm|tcg|auto  auto (the default) tries KVM, and emulates if KVM fails; it remembers the failure
#   --memory MB (512)  --cpus N (1)  --wait SECONDS (180)
#   --append WORDS        for the kernel's command line          --agent WORDS   options for the agent
#   --qemu WORDS          options for QEMU
# The directory RUN is created and not removed. It has `pid`, `url`, `token`, `console` (the output of kernel and agent)
# and the fifo `monitor.in` for QEMU's monitor commands.
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
arch=$(uname -m)
verdict_file=$top/build/cache/qemu-accel
kvm_try_s=20

fail()
{
    echo "image/qemu.sh: $*" >&2
    exit 1
}

usage()
{
    sed -n '2,/^set -eu/{/^set/d;s/^# \{0,1\}//;p;}' "$0" >&2
    exit 2
}

# The pid in RUN/pid may have been reused: the command line shows whether it is this machine.
is_alive()
{
    pid=$(cat "$run/pid" 2>/dev/null) && [ -n "$pid" ] &&
        tr '\0' '\n' 2>/dev/null <"/proc/$pid/cmdline" | grep -qxF "$run/pid"
}

# ---- acceleration -----------------------------------------------------------------------------

# A /dev/kvm that opens may still fail to run a kernel. The result is kept until the next boot of the host.
choose_accel()
{
    if [ ! -w /dev/kvm ]; then
        echo tcg
    elif [ "$(cat "$verdict_file" 2>/dev/null)" = "$(cat /proc/sys/kernel/random/boot_id) tcg" ]; then
        echo tcg
    else
        echo kvm
    fi
}

forget_kvm()
{
    mkdir -p "$(dirname "$verdict_file")"
    echo "$(cat /proc/sys/kernel/random/boot_id) tcg" >"$verdict_file"
}

# Emulated: a machine with clocks that the kernel can calibrate even on a busy host, unlike microvm's.
machine()
{
    case $arch in
    x86_64) echo "-M q35,usb=off,sata=off,smbus=off,vmport=off" ;;
    *) echo "-M virt" ;;
    esac
}

cpu()
{
    case $1 in
    kvm) echo host ;;
    *) echo max ;;
    esac
}

# The kernel's timer check counts loops: emulated on a busy host it fails, and the kernel panics.
kernel_words()
{
    case $arch in
    x86_64) echo "console=ttyS0 no_timer_check" ;;
    *) echo "console=ttyAMA0" ;;
    esac
}

drive()
{
    if [ -n "$disk" ]; then
        echo "file=$disk,format=raw"
    elif [ "$root" = disk ]; then
        echo "file=$image/disk.ext4,format=raw,snapshot=on"
    else
        echo "file=$image/rootfs.squashfs,format=raw,readonly=on"
    fi
}

# ---- start ------------------------------------------------------------------------------------

prepare()
{
    mkdir -p "$run"
    run=$(cd "$run" && pwd -P)
    rm -f "$run/pid" "$run/url" "$run/console" "$run/monitor.in" "$run/monitor.out"
    mkfifo "$run/monitor.in" "$run/monitor.out"
    [ -s "$run/token" ] ||
        (umask 077 && head -c 24 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$run/token")
}

# launch ACCEL: starts QEMU on a free port; QEMU daemonizes once the machine exists.
launch()
{
    tries=0
    while :; do
        port=$((20000 + $(od -An -N 2 -tu2 /dev/urandom) % 12000))
        # shellcheck disable=SC2046,SC2086 # these are several words
        "$qemu" $(machine) -accel "$1" -cpu "$(cpu "$1")" -m "$memory" -smp "$cpus" \
            -nodefaults -no-user-config -display none -no-reboot -daemonize -pidfile "$run/pid" \
            -serial "file:$run/console" -chardev "pipe,id=m,path=$run/monitor" -mon chardev=m,mode=readline \
            -kernel "$image/kernel" -initrd "$image/initramfs" \
            -append "$(kernel_words) quiet panic=-1 mitigations=off nokaslr $append -- $agent" \
            -fw_cfg "name=opt/org.bellhop/token,file=$run/token" \
            -drive "if=none,id=root,$(drive)" -device virtio-blk-pci,drive=root \
            -netdev "user,id=net,hostfwd=tcp:127.0.0.1:$port-:4711" \
            -device virtio-net-pci,netdev=net,romfile= -device virtio-rng-pci $more \
            >"$run/qemu.log" 2>&1 3>&- 4>&- 9>&- </dev/null && break
        tries=$((tries + 1))
        if [ "$tries" -ge 10 ] || ! grep -q 'Could not set up host forwarding' "$run/qemu.log"; then
            return 1
        fi
    done
    echo "http://127.0.0.1:$port" >"$run/url"
}

# answers SECONDS: succeeds if the agent answers within that time.
answers()
{
    end=$(($(date +%s) + $1))
    until curl -sf --noproxy '*' --max-time 2 -o /dev/null "$(cat "$run/url")/v1/health"; do
        is_alive && [ "$(date +%s)" -lt "$end" ] || return 1
        sleep 0.1
    done
}

tell_why()
{
    tail -n 20 "$run/qemu.log" >&2
    [ ! -e "$run/console" ] || tail -n 40 "$run/console" >&2
}

start()
{
    [ $# -ge 2 ] || usage
    image=$1 run=$2 root='' disk='' accel=auto memory=512 cpus=1 wait_s=180 append='' agent='' more=''
    shift 2
    while [ $# -gt 0 ]; do
        [ $# -ge 2 ] || usage
        case $1 in
        --root) root=$2 ;;
        --disk) disk=$2 ;;
        --accel) accel=$2 ;;
        --memory) memory=$2 ;;
        --cpus) cpus=$2 ;;
        --wait) wait_s=$2 ;;
        --append) append=$2 ;;
        --agent) agent=$2 ;;
        --qemu) more=$2 ;;
        *) usage ;;
        esac
        shift 2
    done
    qemu=$(command -v "qemu-system-$arch") || fail "qemu-system-$arch is not installed"
    [ -n "$root" ] || [ -e "$image/rootfs.squashfs" ] || root=disk
    for file in "$image/kernel" "$image/initramfs"; do
        [ -e "$file" ] || fail "there is no '$file': see image/vm.sh"
    done

    prepare
    if [ "$accel" = auto ]; then
        accel=$(choose_accel)
        if [ "$accel" = kvm ] && launch kvm && answers "$kvm_try_s"; then
            accel=
        elif [ "$accel" = kvm ]; then
            kill_it
            forget_kvm
            accel=tcg
            prepare
        fi
    fi
    if [ -n "$accel" ] && ! { launch "$accel" && answers "$wait_s"; }; then
        tell_why
        kill_it
        fail "the agent did not answer in ${wait_s}s"
    fi
    echo "$(cat "$run/url") $(cat "$run/token")"
}

# ---- stop -------------------------------------------------------------------------------------

kill_it()
{
    ! is_alive || kill -9 "$pid" 2>/dev/null || true
}

stop()
{
    [ $# -ge 1 ] || usage
    run=$(cd "$1" 2>/dev/null && pwd -P) || return 0
    is_alive || return 0
    echo system_powerdown 1<>"$run/monitor.in" >&1
    end=$(($(date +%s) + ${2:-60}))
    while is_alive; do
        if [ "$(date +%s)" -ge "$end" ]; then
            kill_it
            fail "the machine did not turn itself off; the console is in '$run/console'"
        fi
        sleep 0.1
    done
}

case ${1:-} in
start | stop) "$@" ;;
*) usage ;;
esac
