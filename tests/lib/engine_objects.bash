# engine_objects.bash: asks an engine of Docker's kind for everything of ours.

# engine_get SOCKET PATH: fails without an answer: `curl | jq` has the status of jq, which takes silence for success.
engine_get()
{
    local answer

    answer=$(curl -sf --max-time 120 --unix-socket "$1" "http://engine/$2") && [ -n "$answer" ] && echo "$answer"
}

# engine_list SOCKET [LABEL]: containers, images and networks with the label (by default: of any store), and all volumes,
# because we label none: "containers ID". An engine that does not answer is a line of its own, so that its silence is not
# taken for "nothing left".
engine_list()
{
    local kind filter answer

    filter=$(jq -rn --arg mark "${2:-dev.bellhop.store}" '{"label": [$mark]} | tojson | @uri') || return
    for kind in "containers/json?all=1&filters=$filter" "images/json?filters=$filter" "networks?filters=$filter" volumes; do
        answer=$(engine_get "$1" "v1.41/$kind") || {
            echo "no answer from $1 about ${kind%%[?/]*}"
            return 1
        }
        jq -r --arg kind "${kind%%[?/]*}" \
            '(if type == "array" then .[].Id else .Volumes[]?.Name end) | "\($kind) \(.)"' <<<"$answer" || {
            echo "a strange answer from $1 about ${kind%%[?/]*}"
            return 1
        }
    done
}
