# processes.bash: the processes of this machine that name something, for box.bash and oci.bash.

# processes_naming TEXT: `process PID: COMMAND LINE` of each with TEXT in its command line. One grep
# reads all of them (a shell's loop over /proc takes half a second, and tests ask this often). It
# gets the text by a pipe, so that it does not find itself.
processes_naming()
{
    local pid line

    for pid in $(grep -laFf <(printf '%s\n' "$1") /proc/[0-9]*/cmdline 2>/dev/null | cut -d / -f 3); do
        case $pid in "$$" | "$BASHPID") continue ;; esac
        line=$( (tr '\0' ' ' <"/proc/$pid/cmdline") 2>/dev/null) || continue
        [[ "$line" != *"$1"* ]] || echo "process $pid: $line"
    done
}
