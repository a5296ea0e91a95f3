# early
# Commands, and the agent's facts about itself, in a default box. The agent can neither see nor write its cgroup
# there, so it must report some facts as unknown.

load ../lib/oci
load ../lib/inbox

setup_file() { inbox_setup_file; }
setup() { inbox_setup; }
teardown_file() { inbox_teardown_file; }

@test "inbox_the_agent_in_a_box_cannot_see_its_cgroup_and_says_unknown" {
    [ "$(jq -n '{shell: "kill -9 $$"}' | box_curl "$B" /bellhop.v1.Exec/Run -H 'Content-Type: application/json' --data-binary @- |
        jq -c '[.exit.reason, .exit.oom, .usage.tree_peak_bytes]')" = '["signaled","unknown",null]' ]
    jq -n '{argv: ["true"], limits: {memory_bytes: 1000000000}}' |
        box_curl "$B" /bellhop.v1.Exec/Run -H 'Content-Type: application/json' --data-binary @- |
        jq -e '.code == "unimplemented" and .field == "limits.memory_bytes"'
}

@test "inbox_exec" { inner exec.bats; }
@test "inbox_exec_matrix" { inner exec-matrix.bats "all groups|three descriptors|told the same|working directory"; }
@test "inbox_exec_cgroup" { inner exec-cgroup.bats; }
@test "inbox_system" { inner system.bats; }
