# bash completion for bellhop; zsh loads it with bashcompinit.
_bellhop() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}
    local cmd=${COMP_WORDS[1]} words=
    if [ "$COMP_CWORD" -eq 1 ]; then
        words="up ls status events start stop pause resume snapshot snapshots restore fork rm keep exec shell ps attach wait kill ports wait-port activity hold release ready prompt url logs put get cat edit watch sync glob grep daemon token quota audit providers doctor gc image config help completion version"
    else
        case $cmd:$prev in
        up:--agent) words="opencode pi none" ;;
        up:--provider) words="oci docker kubernetes process" ;;
        up:--runtime) words="runc crun runsc auto" ;;
        up:--on-timeout) words="stop snapshot rm" ;;
        up:--on-idle) words="pause stop rm keep" ;;
        up:--on-gone) words="destroy recreate" ;;
        up:--network) words="user none host" ;;
        up:--privilege) words="sudo strict" ;;
        up:--git) words="full shallow none" ;;
        pause:--level) words="freeze disk" ;;
        glob:--type) words="file directory symlink executable empty" ;;
        glob:--sort) words="path modified accessed changed size none" ;;
        glob:--sortr) words="path modified accessed changed size none" ;;
        grep:--color) words="auto always never" ;;
        grep:--sort) words="path modified accessed changed none" ;;
        grep:--sortr) words="path modified accessed changed none" ;;
        token:--scope) words="read use admin" ;;
        image:--form) words="squashfs dir tar oci vm dockerfile docker podman qemu" ;;
        *) case $cmd in
            up) case $cur in -*) words=" --name --key --agent --agent-config --provider --image --runtime --pool --timeout --on-timeout --idle --on-idle --on-gone --network --privilege --cpus --memory --disk --pids --read-only --port --env --env-file --secret --label --dest --git --with-secrets --empty --repo --from --git-token-file --allow-missing --start-timeout --json --quiet --no-resume --raw --debug --daemon --token-file --daemon-ca --help" ;; esac ;;
            ls) case $cur in -*) words=" --all --json --quiet --no-resume --raw --debug --daemon --token-file --daemon-ca --help" ;; esac ;;
            status) case $cur in -*) words=" --json --quiet --no-resume --raw --debug --daemon --token-file --daemon-ca --help" ;; *) [ "$COMP_CWORD" -eq 2 ] && words=$(bellhop ls -q 2>/dev/null) ;; esac ;;
            events) case $cur in -*) words=" --since --follow --json --quiet --no-resume --raw --debug --daemon --token-file --daemon-ca --help" ;; *) [ "$COMP_CWORD" -eq 2 ] && words=$(bellhop ls -q 2>/dev/null) ;; esac ;;
            start) case $cur in -*) words=" --json --quiet --no-resume --raw --debug --daemon --token-file --daemon-ca --help" ;; *) words=$(bellhop ls -q 2>/dev/null) ;; esac ;;
            stop) case $cur in -*) words=" --json --quiet --no-resume --raw --debug --daemon --token-file --daemon-ca --help" ;; *) words=$(bellhop ls -q 2>/dev/null) ;; esac ;;
            pause) case $cur in -*) words=" --level --json --quiet --no-resume --raw --debug --daemon --token-file --daemon-ca --help" ;; *) words=$(bellhop ls -q 2>/dev/null) ;; esac ;;
            resume) case $cur in -*) words=" --json --quiet --no-resume --raw --debug --daemon --token-file --daemon-ca --help" ;; *) words=$(bellhop ls -q 2>/dev/null) ;; esac ;;
            snapshot) case $cur in -*) words=" --name --timeout --json --quiet --no-resume --raw --debug --daemon --token-file --daemon-ca --help" ;; *) [ "$COMP_CWORD" -eq 2 ] && words=$(bellhop ls -q 2>/dev/null) ;; esac ;;
            snapshots) case $cur in -*) words=" --timeout --json --quiet --no-resume --raw --debug --daemon --token-file --daemon-ca --help" ;; esac ;;
            restore) case $cur in -*) words=" --json --quiet --no-resume --raw --debug --daemon --token-file --daemon-ca --help" ;; *) [ "$COMP_CWORD" -eq 2 ] && words=$(bellhop ls -q 2>/dev/null) ;; esac ;;
            fork) case $cur in -*) words=" --json --quiet --no-resume --raw --debug --daemon --token-file --daemon-ca --help" ;; *) [ "$COMP_CWORD" -eq 2 ] && words=$(bellhop ls -q 2>/dev/null) ;; esac ;;
            rm) case $cur in -*) words=" --force --json --quiet --no-resume --raw --debug --daemon --token-file --daemon-ca --help" ;; *) words=$(bellhop ls -q 2>/dev/null) ;; esac ;;
            keep) case $cur in -*) words=" --for --json --quiet --no-resume --raw --debug --daemon --token-file --daemon-ca --help" ;; *) [ "$COMP_CWORD" -eq 2 ] && words=$(bellhop ls -q 2>/dev/null) ;; esac ;;
            exec) case $cur in -*) words=" --cwd --user --env --env-file --interactive --tty --no-stdin --detach --id --shell --script --timeout --grace --kill-on-exit --limit --rlimit --umask --json --quiet --no-resume --raw --debug --daemon --token-file --daemon-ca --help" ;; *) [ "$COMP_CWORD" -eq 2 ] && words=$(bellhop ls -q 2>/dev/null) ;; esac ;;
            shell) case $cur in -*) words=" --cwd --user --json --quiet --no-resume --raw --debug --daemon --token-file --daemon-ca --help" ;; *) [ "$COMP_CWORD" -eq 2 ] && words=$(bellhop ls -q 2>/dev/null) ;; esac ;;
            ps) case $cur in -*) words=" --all --json --quiet --no-resume --raw --debug --daemon --token-file --daemon-ca --help" ;; *) [ "$COMP_CWORD" -eq 2 ] && words=$(bellhop ls -q 2>/dev/null) ;; esac ;;
            attach) case $cur in -*) words=" --interactive --new --stdout-offset --stderr-offset --url --name --token-file --dest --json --quiet --no-resume --raw --debug --daemon --token-file --daemon-ca --help" ;; *) [ "$COMP_CWORD" -eq 2 ] && words=$(bellhop ls -q 2>/dev/null) ;; esac ;;
            wait) case $cur in -*) words=" --timeout --json --quiet --no-resume --raw --debug --daemon --token-file --daemon-ca --help" ;; *) [ "$COMP_CWORD" -eq 2 ] && words=$(bellhop ls -q 2>/dev/null) ;; esac ;;
            kill) case $cur in -*) words=" --signal --tree --json --quiet --no-resume --raw --debug --daemon --token-file --daemon-ca --help" ;; *) [ "$COMP_CWORD" -eq 2 ] && words=$(bellhop ls -q 2>/dev/null) ;; esac ;;
            ports) case $cur in -*) words=" --json --quiet --no-resume --raw --debug --daemon --token-file --daemon-ca --help" ;; *) [ "$COMP_CWORD" -eq 2 ] && words=$(bellhop ls -q 2>/dev/null) ;; esac ;;
            wait-port) case $cur in -*) words=" --timeout --path --id --json --quiet --no-resume --raw --debug --daemon --token-file --daemon-ca --help" ;; *) [ "$COMP_CWORD" -eq 2 ] && words=$(bellhop ls -q 2>/dev/null) ;; esac ;;
            activity) case $cur in -*) words=" --json --quiet --no-resume --raw --debug --daemon --token-file --daemon-ca --help" ;; *) [ "$COMP_CWORD" -eq 2 ] && words=$(bellhop ls -q 2>/dev/null) ;; esac ;;
            hold) case $cur in -*) words=" --for --reason --id --json --quiet --no-resume --raw --debug --daemon --token-file --daemon-ca --help" ;; *) [ "$COMP_CWORD" -eq 2 ] && words=$(bellhop ls -q 2>/dev/null) ;; esac ;;
            release) case $cur in -*) words=" --json --quiet --no-resume --raw --debug --daemon --token-file --daemon-ca --help" ;; *) [ "$COMP_CWORD" -eq 2 ] && words=$(bellhop ls -q 2>/dev/null) ;; esac ;;
            ready) case $cur in -*) words=" --json --quiet --no-resume --raw --debug --daemon --token-file --daemon-ca --help" ;; *) [ "$COMP_CWORD" -eq 2 ] && words=$(bellhop ls -q 2>/dev/null) ;; esac ;;
            prompt) case $cur in -*) words=" --session --timeout --action-timeout --warn-after --stale-after --json --quiet --no-resume --raw --debug --daemon --token-file --daemon-ca --help" ;; *) [ "$COMP_CWORD" -eq 2 ] && words=$(bellhop ls -q 2>/dev/null) ;; esac ;;
            url) case $cur in -*) words=" --port --lan --signed --for --file --public --private --json --quiet --no-resume --raw --debug --daemon --token-file --daemon-ca --help" ;; *) [ "$COMP_CWORD" -eq 2 ] && words=$(bellhop ls -q 2>/dev/null) ;; esac ;;
            logs) case $cur in -*) words=" --follow --id --json --quiet --no-resume --raw --debug --daemon --token-file --daemon-ca --help" ;; *) [ "$COMP_CWORD" -eq 2 ] && words=$(bellhop ls -q 2>/dev/null) ;; esac ;;
            put) case $cur in -*) words=" --if-match --json --quiet --no-resume --raw --debug --daemon --token-file --daemon-ca --help" ;; *) [ "$COMP_CWORD" -eq 2 ] && words=$(bellhop ls -q 2>/dev/null) ;; esac ;;
            get) case $cur in -*) words=" --json --quiet --no-resume --raw --debug --daemon --token-file --daemon-ca --help" ;; *) [ "$COMP_CWORD" -eq 2 ] && words=$(bellhop ls -q 2>/dev/null) ;; esac ;;
            cat) case $cur in -*) words=" --json --quiet --no-resume --raw --debug --daemon --token-file --daemon-ca --help" ;; *) [ "$COMP_CWORD" -eq 2 ] && words=$(bellhop ls -q 2>/dev/null) ;; esac ;;
            edit) case $cur in -*) words=" --old --new --count --all --dry-run --if-match --json --quiet --no-resume --raw --debug --daemon --token-file --daemon-ca --help" ;; *) [ "$COMP_CWORD" -eq 2 ] && words=$(bellhop ls -q 2>/dev/null) ;; esac ;;
            watch) case $cur in -*) words=" --exclude --no-recursive --count --timeout --json --quiet --no-resume --raw --debug --daemon --token-file --daemon-ca --help" ;; *) [ "$COMP_CWORD" -eq 2 ] && words=$(bellhop ls -q 2>/dev/null) ;; esac ;;
            sync) case $cur in -*) words=" --dry-run --delete --checksum --exclude --with-git --with-secrets --max-files --json --quiet --no-resume --raw --debug --daemon --token-file --daemon-ca --help" ;; *) [ "$COMP_CWORD" -eq 2 ] && words=$(bellhop ls -q 2>/dev/null) ;; esac ;;
            glob) case $cur in -*) words=" --type --extension --exclude --glob --regex --fixed-strings --full-path --ignore-case --smart-case --case-sensitive --hidden --no-ignore --no-ignore-vcs --no-ignore-parent --follow --one-file-system --max-depth --min-depth --min-size --max-size --changed-within --max-count --null --sort --sortr --cursor --user --json --quiet --no-resume --raw --debug --daemon --token-file --daemon-ca --help" ;; *) [ "$COMP_CWORD" -eq 2 ] && words=$(bellhop ls -q 2>/dev/null) ;; esac ;;
            grep) case $cur in -*) words=" --regexp --ignore-case --smart-case --case-sensitive --fixed-strings --word-regexp --line-regexp --invert-match --multiline --multiline-dotall --crlf --pcre2 --after-context --before-context --context --max-count --limit --only-matching --replace --files-with-matches --files-without-match --count --count-matches --glob --iglob --type --type-not --type-add --hidden --no-ignore --no-ignore-vcs --no-ignore-parent --follow --one-file-system --max-depth --max-filesize --text --binary --encoding --max-columns --with-filename --no-filename --line-number --no-line-number --column --byte-offset --heading --no-heading --color --null --sort --sortr --cursor --user --json --quiet --no-resume --raw --debug --daemon --token-file --daemon-ca --help" ;; *) [ "$COMP_CWORD" -eq 2 ] && words=$(bellhop ls -q 2>/dev/null) ;; esac ;;
            daemon) case $cur in -*) words=" --socket --listen --tls-cert --tls-key --domain --webhook --webhook-secret-file --lease --json --quiet --no-resume --raw --debug --daemon --token-file --daemon-ca --help" ;; esac ;;
            token) case $cur in -*) words=" --scope --owner --expires --name --json --quiet --no-resume --raw --debug --daemon --token-file --daemon-ca --help" ;; esac ;;
            quota) case $cur in -*) words=" --boxes --cpus --memory --disk --json --quiet --no-resume --raw --debug --daemon --token-file --daemon-ca --help" ;; esac ;;
            audit) case $cur in -*) words=" --json --quiet --no-resume --raw --debug --daemon --token-file --daemon-ca --help" ;; esac ;;
            providers) case $cur in -*) words=" --json --quiet --no-resume --raw --debug --daemon --token-file --daemon-ca --help" ;; esac ;;
            doctor) case $cur in -*) words=" --json --quiet --no-resume --raw --debug --daemon --token-file --daemon-ca --help" ;; esac ;;
            gc) case $cur in -*) words=" --stopped-for --records-for --every --dry-run --json --quiet --no-resume --raw --debug --daemon --token-file --daemon-ca --help" ;; esac ;;
            image) case $cur in -*) words=" --form --fresh --all --check --json --quiet --no-resume --raw --debug --daemon --token-file --daemon-ca --help" ;; esac ;;
            config) case $cur in -*) words=" --all --check --json --quiet --no-resume --raw --debug --daemon --token-file --daemon-ca --help" ;; esac ;;
            help) case $cur in -*) words=" --man --json --quiet --no-resume --raw --debug --daemon --token-file --daemon-ca --help" ;; esac ;;
            completion) case $cur in -*) words=" --json --quiet --no-resume --raw --debug --daemon --token-file --daemon-ca --help" ;; esac ;;
            version) case $cur in -*) words=" --json --quiet --no-resume --raw --debug --daemon --token-file --daemon-ca --help" ;; esac ;;
            esac ;;
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
    [ ${#COMPREPLY[@]} -ne 0 ] || COMPREPLY=($(compgen -f -- "$cur"))
    return 0
}
complete -F _bellhop bellhop
