complete -c bellhop -n __fish_use_subcommand -f -a up -d 'make a box with a project and a coding agent in it, or start it again'
complete -c bellhop -n '__fish_seen_subcommand_from up' -l name -r
complete -c bellhop -n '__fish_seen_subcommand_from up' -l key -r
complete -c bellhop -n '__fish_seen_subcommand_from up' -l agent -r
complete -c bellhop -n '__fish_seen_subcommand_from up' -l agent-config -r
complete -c bellhop -n '__fish_seen_subcommand_from up' -l provider -r
complete -c bellhop -n '__fish_seen_subcommand_from up' -l image -r
complete -c bellhop -n '__fish_seen_subcommand_from up' -l runtime -r
complete -c bellhop -n '__fish_seen_subcommand_from up' -l pool -r
complete -c bellhop -n '__fish_seen_subcommand_from up' -l timeout -r
complete -c bellhop -n '__fish_seen_subcommand_from up' -l on-timeout -r
complete -c bellhop -n '__fish_seen_subcommand_from up' -l idle -r
complete -c bellhop -n '__fish_seen_subcommand_from up' -l on-idle -r
complete -c bellhop -n '__fish_seen_subcommand_from up' -l on-gone -r
complete -c bellhop -n '__fish_seen_subcommand_from up' -l network -r
complete -c bellhop -n '__fish_seen_subcommand_from up' -l privilege -r
complete -c bellhop -n '__fish_seen_subcommand_from up' -l cpus -r
complete -c bellhop -n '__fish_seen_subcommand_from up' -l memory -r
complete -c bellhop -n '__fish_seen_subcommand_from up' -l disk -r
complete -c bellhop -n '__fish_seen_subcommand_from up' -l pids -r
complete -c bellhop -n '__fish_seen_subcommand_from up' -l read-only
complete -c bellhop -n '__fish_seen_subcommand_from up' -l port -r
complete -c bellhop -n '__fish_seen_subcommand_from up' -l env -r
complete -c bellhop -n '__fish_seen_subcommand_from up' -l env-file -r
complete -c bellhop -n '__fish_seen_subcommand_from up' -l secret -r
complete -c bellhop -n '__fish_seen_subcommand_from up' -l label -r
complete -c bellhop -n '__fish_seen_subcommand_from up' -l dest -r
complete -c bellhop -n '__fish_seen_subcommand_from up' -l git -r
complete -c bellhop -n '__fish_seen_subcommand_from up' -l with-secrets
complete -c bellhop -n '__fish_seen_subcommand_from up' -l empty
complete -c bellhop -n '__fish_seen_subcommand_from up' -l repo -r
complete -c bellhop -n '__fish_seen_subcommand_from up' -l from -r
complete -c bellhop -n '__fish_seen_subcommand_from up' -l git-token-file -r
complete -c bellhop -n '__fish_seen_subcommand_from up' -l allow-missing -r
complete -c bellhop -n '__fish_seen_subcommand_from up' -l start-timeout -r
complete -c bellhop -n __fish_use_subcommand -f -a ls -d 'list the boxes'
complete -c bellhop -n '__fish_seen_subcommand_from ls' -l all
complete -c bellhop -n __fish_use_subcommand -f -a status -d 'show a box, and what is really enforced on it'
complete -c bellhop -n '__fish_seen_subcommand_from status' -a '(bellhop ls -q 2>/dev/null)'
complete -c bellhop -n __fish_use_subcommand -f -a events -d 'show what happened to a box, or to all, also to those that are gone'
complete -c bellhop -n '__fish_seen_subcommand_from events' -l since -r
complete -c bellhop -n '__fish_seen_subcommand_from events' -l follow
complete -c bellhop -n '__fish_seen_subcommand_from events' -a '(bellhop ls -q 2>/dev/null)'
complete -c bellhop -n __fish_use_subcommand -f -a start -d 'start stopped boxes, with their agents'
complete -c bellhop -n '__fish_seen_subcommand_from start' -a '(bellhop ls -q 2>/dev/null)'
complete -c bellhop -n __fish_use_subcommand -f -a stop -d 'end everything that runs in boxes; their disks stay'
complete -c bellhop -n '__fish_seen_subcommand_from stop' -a '(bellhop ls -q 2>/dev/null)'
complete -c bellhop -n __fish_use_subcommand -f -a pause -d 'let boxes stand still; their memory and their disks stay'
complete -c bellhop -n '__fish_seen_subcommand_from pause' -l level -r
complete -c bellhop -n '__fish_seen_subcommand_from pause' -a '(bellhop ls -q 2>/dev/null)'
complete -c bellhop -n __fish_use_subcommand -f -a resume -d 'let paused boxes run again'
complete -c bellhop -n '__fish_seen_subcommand_from resume' -a '(bellhop ls -q 2>/dev/null)'
complete -c bellhop -n __fish_use_subcommand -f -a snapshot -d 'keep the content of a box\'s disk as it is now'
complete -c bellhop -n '__fish_seen_subcommand_from snapshot' -l name -r
complete -c bellhop -n '__fish_seen_subcommand_from snapshot' -l timeout -r
complete -c bellhop -n '__fish_seen_subcommand_from snapshot' -a '(bellhop ls -q 2>/dev/null)'
complete -c bellhop -n __fish_use_subcommand -f -a snapshots -d 'list, remove and check snapshots'
complete -c bellhop -n '__fish_seen_subcommand_from snapshots' -l timeout -r
complete -c bellhop -n __fish_use_subcommand -f -a restore -d 'give a box\'s disk the content of a snapshot again'
complete -c bellhop -n '__fish_seen_subcommand_from restore' -a '(bellhop ls -q 2>/dev/null)'
complete -c bellhop -n __fish_use_subcommand -f -a fork -d 'make a second box with the content and the options of a box'
complete -c bellhop -n '__fish_seen_subcommand_from fork' -a '(bellhop ls -q 2>/dev/null)'
complete -c bellhop -n __fish_use_subcommand -f -a rm -d 'remove boxes and everything in them'
complete -c bellhop -n '__fish_seen_subcommand_from rm' -l force
complete -c bellhop -n '__fish_seen_subcommand_from rm' -a '(bellhop ls -q 2>/dev/null)'
complete -c bellhop -n __fish_use_subcommand -f -a keep -d 'let a box live longer'
complete -c bellhop -n '__fish_seen_subcommand_from keep' -l for -r
complete -c bellhop -n '__fish_seen_subcommand_from keep' -a '(bellhop ls -q 2>/dev/null)'
complete -c bellhop -n __fish_use_subcommand -f -a exec -d 'run a command in a box; its exit status is the command\'s'
complete -c bellhop -n '__fish_seen_subcommand_from exec' -l cwd -r
complete -c bellhop -n '__fish_seen_subcommand_from exec' -l user -r
complete -c bellhop -n '__fish_seen_subcommand_from exec' -l env -r
complete -c bellhop -n '__fish_seen_subcommand_from exec' -l env-file -r
complete -c bellhop -n '__fish_seen_subcommand_from exec' -l interactive
complete -c bellhop -n '__fish_seen_subcommand_from exec' -l tty
complete -c bellhop -n '__fish_seen_subcommand_from exec' -l no-stdin
complete -c bellhop -n '__fish_seen_subcommand_from exec' -l detach
complete -c bellhop -n '__fish_seen_subcommand_from exec' -l id -r
complete -c bellhop -n '__fish_seen_subcommand_from exec' -l shell -r
complete -c bellhop -n '__fish_seen_subcommand_from exec' -l script -r
complete -c bellhop -n '__fish_seen_subcommand_from exec' -l timeout -r
complete -c bellhop -n '__fish_seen_subcommand_from exec' -l grace -r
complete -c bellhop -n '__fish_seen_subcommand_from exec' -l kill-on-exit
complete -c bellhop -n '__fish_seen_subcommand_from exec' -l limit -r
complete -c bellhop -n '__fish_seen_subcommand_from exec' -l rlimit -r
complete -c bellhop -n '__fish_seen_subcommand_from exec' -l umask -r
complete -c bellhop -n '__fish_seen_subcommand_from exec' -a '(bellhop ls -q 2>/dev/null)'
complete -c bellhop -n __fish_use_subcommand -f -a shell -d 'open a shell in a box'
complete -c bellhop -n '__fish_seen_subcommand_from shell' -l cwd -r
complete -c bellhop -n '__fish_seen_subcommand_from shell' -l user -r
complete -c bellhop -n '__fish_seen_subcommand_from shell' -a '(bellhop ls -q 2>/dev/null)'
complete -c bellhop -n __fish_use_subcommand -f -a ps -d 'list the commands that run in a box'
complete -c bellhop -n '__fish_seen_subcommand_from ps' -l all
complete -c bellhop -n '__fish_seen_subcommand_from ps' -a '(bellhop ls -q 2>/dev/null)'
complete -c bellhop -n __fish_use_subcommand -f -a attach -d 'show the output of a command that runs; attach a box by its URL'
complete -c bellhop -n '__fish_seen_subcommand_from attach' -l interactive
complete -c bellhop -n '__fish_seen_subcommand_from attach' -l new
complete -c bellhop -n '__fish_seen_subcommand_from attach' -l stdout-offset -r
complete -c bellhop -n '__fish_seen_subcommand_from attach' -l stderr-offset -r
complete -c bellhop -n '__fish_seen_subcommand_from attach' -l url -r
complete -c bellhop -n '__fish_seen_subcommand_from attach' -l name -r
complete -c bellhop -n '__fish_seen_subcommand_from attach' -l token-file -r
complete -c bellhop -n '__fish_seen_subcommand_from attach' -l dest -r
complete -c bellhop -n '__fish_seen_subcommand_from attach' -a '(bellhop ls -q 2>/dev/null)'
complete -c bellhop -n __fish_use_subcommand -f -a wait -d 'wait for a command\'s end; the exit status is the command\'s'
complete -c bellhop -n '__fish_seen_subcommand_from wait' -l timeout -r
complete -c bellhop -n '__fish_seen_subcommand_from wait' -a '(bellhop ls -q 2>/dev/null)'
complete -c bellhop -n __fish_use_subcommand -f -a kill -d 'send a signal to a command in a box'
complete -c bellhop -n '__fish_seen_subcommand_from kill' -l signal -r
complete -c bellhop -n '__fish_seen_subcommand_from kill' -l tree
complete -c bellhop -n '__fish_seen_subcommand_from kill' -a '(bellhop ls -q 2>/dev/null)'
complete -c bellhop -n __fish_use_subcommand -f -a ports -d 'list what listens in a box'
complete -c bellhop -n '__fish_seen_subcommand_from ports' -a '(bellhop ls -q 2>/dev/null)'
complete -c bellhop -n __fish_use_subcommand -f -a wait-port -d 'wait until something listens on a port in a box'
complete -c bellhop -n '__fish_seen_subcommand_from wait-port' -l timeout -r
complete -c bellhop -n '__fish_seen_subcommand_from wait-port' -l path -r
complete -c bellhop -n '__fish_seen_subcommand_from wait-port' -l id -r
complete -c bellhop -n '__fish_seen_subcommand_from wait-port' -a '(bellhop ls -q 2>/dev/null)'
complete -c bellhop -n __fish_use_subcommand -f -a activity -d 'report whether a box is in use, and by what'
complete -c bellhop -n '__fish_seen_subcommand_from activity' -a '(bellhop ls -q 2>/dev/null)'
complete -c bellhop -n __fish_use_subcommand -f -a hold -d 'keep a box in use for a while; prints the hold\'s id'
complete -c bellhop -n '__fish_seen_subcommand_from hold' -l for -r
complete -c bellhop -n '__fish_seen_subcommand_from hold' -l reason -r
complete -c bellhop -n '__fish_seen_subcommand_from hold' -l id -r
complete -c bellhop -n '__fish_seen_subcommand_from hold' -a '(bellhop ls -q 2>/dev/null)'
complete -c bellhop -n __fish_use_subcommand -f -a release -d 'end a hold on a box'
complete -c bellhop -n '__fish_seen_subcommand_from release' -a '(bellhop ls -q 2>/dev/null)'
complete -c bellhop -n __fish_use_subcommand -f -a ready -d 'run every tool that a box promises, and report which work'
complete -c bellhop -n '__fish_seen_subcommand_from ready' -a '(bellhop ls -q 2>/dev/null)'
complete -c bellhop -n __fish_use_subcommand -f -a prompt -d 'give the coding agent a prompt, and wait for its answer'
complete -c bellhop -n '__fish_seen_subcommand_from prompt' -l session -r
complete -c bellhop -n '__fish_seen_subcommand_from prompt' -l timeout -r
complete -c bellhop -n '__fish_seen_subcommand_from prompt' -l action-timeout -r
complete -c bellhop -n '__fish_seen_subcommand_from prompt' -l warn-after -r
complete -c bellhop -n '__fish_seen_subcommand_from prompt' -l stale-after -r
complete -c bellhop -n '__fish_seen_subcommand_from prompt' -a '(bellhop ls -q 2>/dev/null)'
complete -c bellhop -n __fish_use_subcommand -f -a url -d 'print a local URL for a port in a box'
complete -c bellhop -n '__fish_seen_subcommand_from url' -l port -r
complete -c bellhop -n '__fish_seen_subcommand_from url' -l lan
complete -c bellhop -n '__fish_seen_subcommand_from url' -l signed
complete -c bellhop -n '__fish_seen_subcommand_from url' -l for -r
complete -c bellhop -n '__fish_seen_subcommand_from url' -l file -r
complete -c bellhop -n '__fish_seen_subcommand_from url' -l public
complete -c bellhop -n '__fish_seen_subcommand_from url' -l private
complete -c bellhop -n '__fish_seen_subcommand_from url' -a '(bellhop ls -q 2>/dev/null)'
complete -c bellhop -n __fish_use_subcommand -f -a logs -d 'show what the coding agent has printed'
complete -c bellhop -n '__fish_seen_subcommand_from logs' -l follow
complete -c bellhop -n '__fish_seen_subcommand_from logs' -l id -r
complete -c bellhop -n '__fish_seen_subcommand_from logs' -a '(bellhop ls -q 2>/dev/null)'
complete -c bellhop -n __fish_use_subcommand -f -a put -d 'copy files and directories into a box'
complete -c bellhop -n '__fish_seen_subcommand_from put' -l if-match -r
complete -c bellhop -n '__fish_seen_subcommand_from put' -a '(bellhop ls -q 2>/dev/null)'
complete -c bellhop -n __fish_use_subcommand -f -a get -d 'copy a file or directory out of a box'
complete -c bellhop -n '__fish_seen_subcommand_from get' -a '(bellhop ls -q 2>/dev/null)'
complete -c bellhop -n __fish_use_subcommand -f -a cat -d 'print files of a box, byte for byte'
complete -c bellhop -n '__fish_seen_subcommand_from cat' -a '(bellhop ls -q 2>/dev/null)'
complete -c bellhop -n __fish_use_subcommand -f -a edit -d 'replace text in a file of a box; prints the change as a diff'
complete -c bellhop -n '__fish_seen_subcommand_from edit' -l old -r
complete -c bellhop -n '__fish_seen_subcommand_from edit' -l new -r
complete -c bellhop -n '__fish_seen_subcommand_from edit' -l count -r
complete -c bellhop -n '__fish_seen_subcommand_from edit' -l all
complete -c bellhop -n '__fish_seen_subcommand_from edit' -l dry-run
complete -c bellhop -n '__fish_seen_subcommand_from edit' -l if-match -r
complete -c bellhop -n '__fish_seen_subcommand_from edit' -a '(bellhop ls -q 2>/dev/null)'
complete -c bellhop -n __fish_use_subcommand -f -a watch -d 'report changes to the files of a box, one line for each event'
complete -c bellhop -n '__fish_seen_subcommand_from watch' -l exclude -r
complete -c bellhop -n '__fish_seen_subcommand_from watch' -l no-recursive
complete -c bellhop -n '__fish_seen_subcommand_from watch' -l count -r
complete -c bellhop -n '__fish_seen_subcommand_from watch' -l timeout -r
complete -c bellhop -n '__fish_seen_subcommand_from watch' -a '(bellhop ls -q 2>/dev/null)'
complete -c bellhop -n __fish_use_subcommand -f -a sync -d 'make a directory in a box like one here, or the other way round'
complete -c bellhop -n '__fish_seen_subcommand_from sync' -l dry-run
complete -c bellhop -n '__fish_seen_subcommand_from sync' -l delete
complete -c bellhop -n '__fish_seen_subcommand_from sync' -l checksum
complete -c bellhop -n '__fish_seen_subcommand_from sync' -l exclude -r
complete -c bellhop -n '__fish_seen_subcommand_from sync' -l with-git
complete -c bellhop -n '__fish_seen_subcommand_from sync' -l with-secrets
complete -c bellhop -n '__fish_seen_subcommand_from sync' -l max-files -r
complete -c bellhop -n '__fish_seen_subcommand_from sync' -a '(bellhop ls -q 2>/dev/null)'
complete -c bellhop -n __fish_use_subcommand -f -a glob -d 'find files in a box by name'
complete -c bellhop -n '__fish_seen_subcommand_from glob' -l type -r
complete -c bellhop -n '__fish_seen_subcommand_from glob' -l extension -r
complete -c bellhop -n '__fish_seen_subcommand_from glob' -l exclude -r
complete -c bellhop -n '__fish_seen_subcommand_from glob' -l glob -r
complete -c bellhop -n '__fish_seen_subcommand_from glob' -l regex
complete -c bellhop -n '__fish_seen_subcommand_from glob' -l fixed-strings
complete -c bellhop -n '__fish_seen_subcommand_from glob' -l full-path
complete -c bellhop -n '__fish_seen_subcommand_from glob' -l ignore-case
complete -c bellhop -n '__fish_seen_subcommand_from glob' -l smart-case
complete -c bellhop -n '__fish_seen_subcommand_from glob' -l case-sensitive
complete -c bellhop -n '__fish_seen_subcommand_from glob' -l hidden
complete -c bellhop -n '__fish_seen_subcommand_from glob' -l no-ignore
complete -c bellhop -n '__fish_seen_subcommand_from glob' -l no-ignore-vcs
complete -c bellhop -n '__fish_seen_subcommand_from glob' -l no-ignore-parent
complete -c bellhop -n '__fish_seen_subcommand_from glob' -l follow
complete -c bellhop -n '__fish_seen_subcommand_from glob' -l one-file-system
complete -c bellhop -n '__fish_seen_subcommand_from glob' -l max-depth -r
complete -c bellhop -n '__fish_seen_subcommand_from glob' -l min-depth -r
complete -c bellhop -n '__fish_seen_subcommand_from glob' -l min-size -r
complete -c bellhop -n '__fish_seen_subcommand_from glob' -l max-size -r
complete -c bellhop -n '__fish_seen_subcommand_from glob' -l changed-within -r
complete -c bellhop -n '__fish_seen_subcommand_from glob' -l max-count -r
complete -c bellhop -n '__fish_seen_subcommand_from glob' -l null
complete -c bellhop -n '__fish_seen_subcommand_from glob' -l sort -r
complete -c bellhop -n '__fish_seen_subcommand_from glob' -l sortr -r
complete -c bellhop -n '__fish_seen_subcommand_from glob' -l cursor -r
complete -c bellhop -n '__fish_seen_subcommand_from glob' -l user -r
complete -c bellhop -n '__fish_seen_subcommand_from glob' -a '(bellhop ls -q 2>/dev/null)'
complete -c bellhop -n __fish_use_subcommand -f -a grep -d 'search the content of files in a box'
complete -c bellhop -n '__fish_seen_subcommand_from grep' -l regexp -r
complete -c bellhop -n '__fish_seen_subcommand_from grep' -l ignore-case
complete -c bellhop -n '__fish_seen_subcommand_from grep' -l smart-case
complete -c bellhop -n '__fish_seen_subcommand_from grep' -l case-sensitive
complete -c bellhop -n '__fish_seen_subcommand_from grep' -l fixed-strings
complete -c bellhop -n '__fish_seen_subcommand_from grep' -l word-regexp
complete -c bellhop -n '__fish_seen_subcommand_from grep' -l line-regexp
complete -c bellhop -n '__fish_seen_subcommand_from grep' -l invert-match
complete -c bellhop -n '__fish_seen_subcommand_from grep' -l multiline
complete -c bellhop -n '__fish_seen_subcommand_from grep' -l multiline-dotall
complete -c bellhop -n '__fish_seen_subcommand_from grep' -l crlf
complete -c bellhop -n '__fish_seen_subcommand_from grep' -l pcre2
complete -c bellhop -n '__fish_seen_subcommand_from grep' -l after-context -r
complete -c bellhop -n '__fish_seen_subcommand_from grep' -l before-context -r
complete -c bellhop -n '__fish_seen_subcommand_from grep' -l context -r
complete -c bellhop -n '__fish_seen_subcommand_from grep' -l max-count -r
complete -c bellhop -n '__fish_seen_subcommand_from grep' -l limit -r
complete -c bellhop -n '__fish_seen_subcommand_from grep' -l only-matching
complete -c bellhop -n '__fish_seen_subcommand_from grep' -l replace -r
complete -c bellhop -n '__fish_seen_subcommand_from grep' -l files-with-matches
complete -c bellhop -n '__fish_seen_subcommand_from grep' -l files-without-match
complete -c bellhop -n '__fish_seen_subcommand_from grep' -l count
complete -c bellhop -n '__fish_seen_subcommand_from grep' -l count-matches
complete -c bellhop -n '__fish_seen_subcommand_from grep' -l glob -r
complete -c bellhop -n '__fish_seen_subcommand_from grep' -l iglob -r
complete -c bellhop -n '__fish_seen_subcommand_from grep' -l type -r
complete -c bellhop -n '__fish_seen_subcommand_from grep' -l type-not -r
complete -c bellhop -n '__fish_seen_subcommand_from grep' -l type-add -r
complete -c bellhop -n '__fish_seen_subcommand_from grep' -l hidden
complete -c bellhop -n '__fish_seen_subcommand_from grep' -l no-ignore
complete -c bellhop -n '__fish_seen_subcommand_from grep' -l no-ignore-vcs
complete -c bellhop -n '__fish_seen_subcommand_from grep' -l no-ignore-parent
complete -c bellhop -n '__fish_seen_subcommand_from grep' -l follow
complete -c bellhop -n '__fish_seen_subcommand_from grep' -l one-file-system
complete -c bellhop -n '__fish_seen_subcommand_from grep' -l max-depth -r
complete -c bellhop -n '__fish_seen_subcommand_from grep' -l max-filesize -r
complete -c bellhop -n '__fish_seen_subcommand_from grep' -l text
complete -c bellhop -n '__fish_seen_subcommand_from grep' -l binary
complete -c bellhop -n '__fish_seen_subcommand_from grep' -l encoding -r
complete -c bellhop -n '__fish_seen_subcommand_from grep' -l max-columns -r
complete -c bellhop -n '__fish_seen_subcommand_from grep' -l with-filename
complete -c bellhop -n '__fish_seen_subcommand_from grep' -l no-filename
complete -c bellhop -n '__fish_seen_subcommand_from grep' -l line-number
complete -c bellhop -n '__fish_seen_subcommand_from grep' -l no-line-number
complete -c bellhop -n '__fish_seen_subcommand_from grep' -l column
complete -c bellhop -n '__fish_seen_subcommand_from grep' -l byte-offset
complete -c bellhop -n '__fish_seen_subcommand_from grep' -l heading
complete -c bellhop -n '__fish_seen_subcommand_from grep' -l no-heading
complete -c bellhop -n '__fish_seen_subcommand_from grep' -l color -r
complete -c bellhop -n '__fish_seen_subcommand_from grep' -l null
complete -c bellhop -n '__fish_seen_subcommand_from grep' -l sort -r
complete -c bellhop -n '__fish_seen_subcommand_from grep' -l sortr -r
complete -c bellhop -n '__fish_seen_subcommand_from grep' -l cursor -r
complete -c bellhop -n '__fish_seen_subcommand_from grep' -l user -r
complete -c bellhop -n '__fish_seen_subcommand_from grep' -a '(bellhop ls -q 2>/dev/null)'
complete -c bellhop -n __fish_use_subcommand -f -a daemon -d 'serve the boxes over HTTP: REST, events, a gateway to their ports'
complete -c bellhop -n '__fish_seen_subcommand_from daemon' -l socket -r
complete -c bellhop -n '__fish_seen_subcommand_from daemon' -l listen -r
complete -c bellhop -n '__fish_seen_subcommand_from daemon' -l tls-cert -r
complete -c bellhop -n '__fish_seen_subcommand_from daemon' -l tls-key -r
complete -c bellhop -n '__fish_seen_subcommand_from daemon' -l domain -r
complete -c bellhop -n '__fish_seen_subcommand_from daemon' -l webhook -r
complete -c bellhop -n '__fish_seen_subcommand_from daemon' -l webhook-secret-file -r
complete -c bellhop -n '__fish_seen_subcommand_from daemon' -l lease -r
complete -c bellhop -n __fish_use_subcommand -f -a token -d 'make, list and revoke the daemon\'s tokens'
complete -c bellhop -n '__fish_seen_subcommand_from token' -l scope -r
complete -c bellhop -n '__fish_seen_subcommand_from token' -l owner -r
complete -c bellhop -n '__fish_seen_subcommand_from token' -l expires -r
complete -c bellhop -n '__fish_seen_subcommand_from token' -l name -r
complete -c bellhop -n __fish_use_subcommand -f -a quota -d 'bound what the boxes of an owner use together'
complete -c bellhop -n '__fish_seen_subcommand_from quota' -l boxes -r
complete -c bellhop -n '__fish_seen_subcommand_from quota' -l cpus -r
complete -c bellhop -n '__fish_seen_subcommand_from quota' -l memory -r
complete -c bellhop -n '__fish_seen_subcommand_from quota' -l disk -r
complete -c bellhop -n __fish_use_subcommand -f -a audit -d 'list and check the record of calls that change something'
complete -c bellhop -n __fish_use_subcommand -f -a providers -d 'list the providers of boxes, and test each one'
complete -c bellhop -n __fish_use_subcommand -f -a doctor -d 'check what this machine has and lacks for boxes'
complete -c bellhop -n __fish_use_subcommand -f -a gc -d 'finish or roll back interrupted changes, remove what no box owns'
complete -c bellhop -n '__fish_seen_subcommand_from gc' -l stopped-for -r
complete -c bellhop -n '__fish_seen_subcommand_from gc' -l records-for -r
complete -c bellhop -n '__fish_seen_subcommand_from gc' -l every -r
complete -c bellhop -n '__fish_seen_subcommand_from gc' -l dry-run
complete -c bellhop -n __fish_use_subcommand -f -a image -d 'build, list, test and remove images'
complete -c bellhop -n '__fish_seen_subcommand_from image' -l form -r
complete -c bellhop -n '__fish_seen_subcommand_from image' -l fresh
complete -c bellhop -n '__fish_seen_subcommand_from image' -l all
complete -c bellhop -n '__fish_seen_subcommand_from image' -l check -r
complete -c bellhop -n __fish_use_subcommand -f -a config -d 'show the configuration, and where each value comes from'
complete -c bellhop -n '__fish_seen_subcommand_from config' -l all
complete -c bellhop -n '__fish_seen_subcommand_from config' -l check
complete -c bellhop -n __fish_use_subcommand -f -a help -d 'explain a command'
complete -c bellhop -n '__fish_seen_subcommand_from help' -l man
complete -c bellhop -n __fish_use_subcommand -f -a completion -d 'print a completion script for a shell'
complete -c bellhop -n __fish_use_subcommand -f -a version -d 'print the version'
